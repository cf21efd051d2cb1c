"""Load the model of a command: `linnet.load`, with its notes for the user on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..data import Tokenizer
    from ..loading import LoadedModel
    from ..models import LanguageModel


def load(folder: Path, checkpoint: str | None = None, *, quiet: bool = False) -> LoadedModel:
    """Load and verify the model in a folder; print its notes to stderr unless `quiet`."""
    from ..loading import load as load_model

    loaded = load_model(folder, checkpoint=checkpoint)
    for note in () if quiet else loaded.notes:
        print(note, file=sys.stderr)
    return loaded


def load_language(
    folder: Path, checkpoint: str | None = None, *, quiet: bool = False
) -> tuple[LanguageModel, Tokenizer]:
    """Load a language model and its tokenizer; raise ValueError for any other model."""
    return load(folder, checkpoint, quiet=quiet).language()


def load_image_model(folder: Path, checkpoint: str | None) -> Any:
    """Load an image model; raise ValueError for any other model."""
    loaded = load(folder, checkpoint)
    if loaded.config.task != "image":
        task = loaded.config.task
        raise ValueError(f"{folder} holds a {task} model; accepted: an image model, as trained by `linnet train image`")
    return loaded.model
