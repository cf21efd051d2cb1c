"""`linnet eval FOLDER --text FILE`: a language model in a folder of its own, such as an imported one, on any text.

    pieces of T tokens, end to end; each follows the tokenizer's prefix, or where it has none the token before it

so that every token is predicted once (but the very first, where there is no prefix), after at most T others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data import ByteTokenizer, Tokenizer
from ..data.files import byte_pieces, text_pieces
from ..models import LanguageModel
from ..models.language import IGNORE
from ..train.jobs import FILE as RUN
from .loading import load_language


class Pieces:
    """The pieces of a text as batches for `model.metrics` and `score`."""

    def __init__(self, ids: Sequence[int], tokenizer: Tokenizer, size: int) -> None:
        self.ids, self.tokenizer, self.size = list(ids), tokenizer, size
        self.first = 0 if tokenizer.prefix else 1  # the first token that is predicted
        self.length = -(-(len(self.ids) - self.first) // size)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """{"tokens", "targets"}: [B,T] int64; where there is nothing to predict 0 and -100."""
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


def opened(folder: Path, text: Path, size: int) -> tuple[LanguageModel, Pieces]:
    """The model of a folder, and the text as its tokenizer cuts it."""
    if (folder / RUN).is_file():
        raise ValueError(
            f"--text is {text}, but {folder} is a run with held-out data of its own; leave --text out, or name one of "
            f"its checkpoints instead, such as {folder / 'checkpoints' / 'step-00000200'}"
        )
    model, tokenizer = load_language(folder)
    pieces = Pieces(_ids(text, tokenizer), tokenizer, size)
    if pieces.length < 1:
        raise ValueError(f"{text} has {len(pieces.ids)} tokens; accepted: a text of {1 + pieces.first} or more")
    return model.eval(), pieces


def _ids(path: Path, tokenizer: Tokenizer) -> list[int]:
    """The text encoded as a whole: a tokenizer may begin each call with a space of its own."""
    if isinstance(tokenizer, ByteTokenizer):
        return list(b"".join(byte_pieces(path)))
    return tokenizer.encode("".join(text_pieces(path)))
