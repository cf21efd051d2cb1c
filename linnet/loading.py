"""`linnet.load`: the one way from a folder to a model and its tokenizer, for every command and for programs.

    found = linnet.load("runs/text")                     a run: its best checkpoint by held-out loss
    found = linnet.load("runs/text", checkpoint="newest")
    found.model, found.tokenizer, found.config           the model in evaluation mode

Checksums, names, shapes and dtypes are verified first (models/folder.py, models/base.py); what does not fit is refused
in one sentence. `notes` has what a user should know: which checkpoint it is, or that there was nothing to verify.
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
from .models.folder import FOLDER, find


@dataclass(frozen=True)
class LoadedModel:
    """A model and what belongs to it."""

    model: Model
    tokenizer: Tokenizer | None  # None unless it is a language model and its folder has one
    config: ModelConfig
    folder: Path  # where the weights are
    trainer: Mapping[str, Any] | None = None  # of a checkpoint: what trainer.json says
    notes: tuple[str, ...] = ()

    def language(self) -> tuple[LanguageModel, Tokenizer]:
        """The model and its tokenizer, or ValueError unless it is a language model that has one."""
        if not isinstance(self.model, LanguageModel):
            raise ValueError(
                f"{self.folder} holds a model for the task {self.config.task!r}; accepted: a language model, which "
                "`linnet train text` makes"
            )
        if self.tokenizer is None:
            raise ValueError(
                f"{self.folder} has no {FILE}, and the model has {self.config.vocab_size} tokens; put the tokenizer it "
                "was trained with there (Tokenizer.save)"
            )
        return self.model, self.tokenizer


def load(path: str | os.PathLike[str], *, checkpoint: str | None = None) -> LoadedModel:
    """The model of a folder that `linnet train`, `linnet import` or save_pretrained wrote.

    checkpoint: of a run's folder: "best" (by held-out loss; None), "newest", a step such as "200", or a name such as
    "step-00000200".
    """
    path = Path(path)
    found = find(path, checkpoint)
    model, notes = open_model(found)
    tokenizer = None
    if isinstance(model, LanguageModel):
        tokenizer, note = _tokenizer(path, model.config)
        notes += note
    return LoadedModel(model.eval(), tokenizer, model.config, found.folder, found.trainer, notes)


def _tokenizer(path: Path, config: ModelConfig) -> tuple[Tokenizer | None, tuple[str, ...]]:
    places = [path, path.parent.parent] if path.parent.name == FOLDER else [path]  # that of a checkpoint's run
    for place in places:
        if (place / FILE).is_file():
            return load_tokenizer(place / FILE), ()
    if config.vocab_size != ByteTokenizer.vocab_size:
        return None, ()
    return ByteTokenizer(), (f"{path} has no {FILE}; its 256 tokens are taken for bytes",)
