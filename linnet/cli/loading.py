"""The model of a command: `linnet.load`, with what a user should know about it on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..data import Tokenizer
    from ..loading import LoadedModel
    from ..models import LanguageModel


def load(folder: Path, checkpoint: str | None = None, *, quiet: bool = False) -> LoadedModel:
    """The model of a folder, verified; notes go to stderr unless it is to be quiet."""
    from ..loading import load as load_model

    found = load_model(folder, checkpoint=checkpoint)
    for note in () if quiet else found.notes:
        print(note, file=sys.stderr)
    return found


def load_language(
    folder: Path, checkpoint: str | None = None, *, quiet: bool = False
) -> tuple[LanguageModel, Tokenizer]:
    """A language model and its tokenizer, or one sentence."""
    return load(folder, checkpoint, quiet=quiet).language()


def load_image_model(folder: Path, checkpoint: str | None) -> Any:
    """An image model, or one sentence."""
    found = load(folder, checkpoint)
    if found.config.task != "image":
        task = found.config.task
        raise ValueError(f"{folder} holds a {task} model; accepted: an image model, which `linnet train image` makes")
    return found.model
