"""`linnet eval FOLDER --text FILE`: measure a language model without a run, such as an imported one, on any text.

    pieces of T tokens, end to end; each follows the tokenizer's prefix or, if it has none, the token before it

so every token is predicted exactly once (except the first, if there is no prefix), after at most T others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data import ByteTokenizer, Tokenizer
from ..data.files import byte_pieces, text_pieces
from ..models import LanguageModel
from ..targets import IGNORE
from ..train.jobs import FILE as RUN
from .loading import load_language


class Pieces:
    """The pieces of a text as batches for `model.metrics` and `score`."""

    def __init__(self, ids: Sequence[int], tokenizer: Tokenizer, size: int) -> None:
        self.ids, self.tokenizer, self.size = list(ids), tokenizer, size
        self.first = 0 if tokenizer.prefix else 1  # the first token that is predicted
        self.length = -(-(len(self.ids) - self.first) // size)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return {"tokens", "targets"}: [B,T] int64; 0 and IGNORE where there is nothing to predict."""
        pairs = [self._row(row) for row in rows]
        width = max(len(tokens) for tokens, _ in pairs)
        tokens = [row + [0] * (width - len(row)) for row, _ in pairs]
        targets = [row + [IGNORE] * (width - len(row)) for _, row in pairs]
        return {"tokens": torch.tensor(tokens), "targets": torch.tensor(targets)}

    def _row(self, row: int) -> tuple[list[int], list[int]]:
        start = self.first + row * self.size
        piece = self.ids[start : start + self.size]
        before = list(self.tokenizer.prefix) or self.ids[start - 1 : start]
        return before + piece[:-1], [IGNORE] * (len(before) - 1) + piece


def load_with_text(folder: Path, text: Path, size: int) -> tuple[LanguageModel, Pieces]:
    """Return the model in a folder and the text as tokens of its tokenizer."""
    if (folder / RUN).is_file():
        raise ValueError(
            f"--text is {text}, but {folder} is a run with its own held-out data; omit --text, or give one of its "
            f"checkpoints instead, such as {folder / 'checkpoints' / 'step-00000200'}"
        )
    model, tokenizer = load_language(folder)
    pieces = Pieces(_ids(text, tokenizer), tokenizer, size)
    if pieces.length < 1:
        raise ValueError(f"{text} has {len(pieces.ids)} tokens; accepted: a text of {1 + pieces.first} or more")
    return model.eval(), pieces


def _ids(path: Path, tokenizer: Tokenizer) -> list[int]:
    """Encode the whole text in one call: a tokenizer may prepend a space at each call."""
    if isinstance(tokenizer, ByteTokenizer):
        return list(b"".join(byte_pieces(path)))
    return tokenizer.encode("".join(text_pieces(path)))
