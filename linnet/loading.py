"""`linnet.load`: load a model and its tokenizer from a folder; every command and every program uses it.

    loaded = linnet.load("runs/text")                    a run: its best checkpoint by held-out loss
    loaded = linnet.load("runs/text", checkpoint="newest")
    loaded.model, loaded.tokenizer, loaded.config        the model in evaluation mode

Checksums, names, shapes and dtypes are verified first (models/folder.py, models/base.py); a mismatch raises an error of
one sentence. `notes` tells the user which checkpoint was loaded, or that the folder has no checksums to verify.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .data import ByteTokenizer, Tokenizer, load_tokenizer
from .data.tokenizer import FILE
from .models import LanguageModel, Model, ModelConfig
from .models.base import open_model
from .models.folder import FOLDER, find_model


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, its configuration and the folder of its weights."""

    model: Model
    tokenizer: Tokenizer | None  # None unless it is a language model and its folder has one
    config: ModelConfig
    folder: Path  # where the weights are
    trainer: Mapping[str, Any] | None = None  # of a checkpoint: the content of trainer.json
    notes: tuple[str, ...] = ()

    def language(self) -> tuple[LanguageModel, Tokenizer]:
        """Return the model and its tokenizer; raise ValueError unless it is a language model that has one."""
        if not isinstance(self.model, LanguageModel):
            raise ValueError(
                f"{self.folder} holds a model for the task {self.config.task!r}; accepted: a language model, as "
                "trained by `linnet train text`"
            )
        if self.tokenizer is None:
            raise ValueError(
                f"{self.folder} has no {FILE}, and the model has {self.config.vocab_size} tokens; save the tokenizer "
                "it was trained with there (Tokenizer.save)"
            )
        return self.model, self.tokenizer


def load(path: str | os.PathLike[str], *, checkpoint: str | None = None) -> LoadedModel:
    """Load the model in a folder that `linnet train`, `linnet import` or save_pretrained wrote.

    checkpoint: for the folder of a run: "best" (by held-out loss; the default), "newest", a step such as "200", or a
    name such as "step-00000200".
    """
    path = Path(path)
    source = find_model(path, checkpoint)
    model, notes = open_model(source)
    tokenizer = None
    if isinstance(model, LanguageModel):
        tokenizer, note = _tokenizer(path, model.config)
        notes += note
    return LoadedModel(model.eval(), tokenizer, model.config, source.folder, source.trainer, notes)


def _tokenizer(path: Path, config: ModelConfig) -> tuple[Tokenizer | None, tuple[str, ...]]:
    folders = [path, path.parent.parent] if path.parent.name == FOLDER else [path]  # a checkpoint, then its run
    for folder in folders:
        if (folder / FILE).is_file():
            return load_tokenizer(folder / FILE), ()
    if config.vocab_size != ByteTokenizer.vocab_size:
        return None, ()
    return ByteTokenizer(), (f"{path} has no {FILE}; its 256 tokens are read as bytes",)
