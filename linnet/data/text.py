"""Text for language models: one long array of token ids, and windows of it as examples.

    tokens = ids[i : i+T]      targets = ids[i+1 : i+T+1]         T = seq_len

Training windows start at every token (stride 1); held-out windows lie end to end (stride T), so that every held-out
token is predicted exactly once. The ids stay on disk, memory-mapped: plain files directly under the byte tokenizer, all
others through a token file. Windows do not cross file boundaries.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import number, unknown, whole
from ..targets import IGNORE
from .files import PathLike, check_text, packing, path_list, sample_hash
from .token_file import tokens_of
from .tokenizer import ByteTokenizer, Tokenizer

Array = np.ndarray[Any, Any]


class TextSource:
    """Windows of text files.

    Args:
        paths: a file or several, plain, gzip or bzip2; UTF-8, or any bytes for the byte tokenizer.
        seq_len: T, tokens per example.
        split: "train", all but the end of the text, or "valid", the end.
        valid_fraction: held-out fraction of all files concatenated; 0 trains on everything, and
            split="valid" with 1 makes all of a separate file the held-out text.
        cache: folder for token files, created when needed; None: a temporary one, removed with this object.
        allow_binary: let the byte tokenizer read files that do not look like text.
    """

    unit = "tokens"

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        tokenizer: Tokenizer,
        seq_len: int,
        split: str = "train",
        *,
        valid_fraction: float = 0.1,
        cache: PathLike | None = None,
        allow_binary: bool = False,
    ) -> None:
        files = path_list(paths)
        _check(files, seq_len, split, valid_fraction)
        self.tokenizer, self.seq_len, self.split = tokenizer, seq_len, split
        arrays = [self._ids(path, cache, allow_binary) for path in files]
        for path, ids in zip(files, arrays, strict=True):
            if len(ids) < seq_len + 1:
                raise ValueError(
                    f"{path} has {len(ids)} tokens, too few for seq_len = {seq_len}; accepted: {seq_len + 1} or more; "
                    "use a smaller seq_len or a longer text"
                )
        self._parts = _parts(arrays, split, valid_fraction)
        counts = [self._windows(ids) for ids in self._parts]
        self._ends = np.array(list(accumulate(counts)), dtype=np.int64)  # rows up to and including each part
        self.length = int(self._ends[-1]) if counts else 0
        if not self.length:
            raise ValueError(
                f"split {split!r} with valid_fraction = {valid_fraction} has no window of {seq_len} tokens in "
                f"{sum(map(len, arrays))}; use a smaller seq_len, another valid_fraction or a longer text"
            )
        identity = [tokenizer.fingerprint, str(seq_len), split, str(float(valid_fraction))]
        identity += [sample_hash(ids.view(np.uint8)) for ids in arrays]
        self.fingerprint = sha256(" ".join(identity).encode()).hexdigest()[:16]

    @property
    def example(self) -> str:
        """A description of an example."""
        return f"windows of {self.seq_len} tokens, {'one from every token' if self.split == 'train' else 'end to end'}"

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return {"tokens", "targets"}: [B,T] int64; 0 and IGNORE past the end of a text."""
        tokens = np.zeros((len(rows), self.seq_len), np.int64)
        targets = np.full((len(rows), self.seq_len), IGNORE, np.int64)
        for b, row in enumerate(rows):
            ids = self._window(int(row))  # up to T + 1 ids
            tokens[b, : len(ids) - 1] = ids[:-1]
            targets[b, : len(ids) - 1] = ids[1:]
        return {"tokens": torch.from_numpy(tokens), "targets": torch.from_numpy(targets)}

    def units(self, batch: dict[str, Tensor]) -> int:
        """Return the number of predicted tokens in a batch."""
        return int((batch["targets"] != IGNORE).sum())

    def _window(self, row: int) -> Array:
        if not 0 <= row < self.length:
            raise ValueError(f"row {row} is not in the {self.split} split; accepted: 0 to {self.length - 1}")
        part = int(np.searchsorted(self._ends, row, side="right"))
        first = row - (int(self._ends[part - 1]) if part else 0)
        start = first if self.split == "train" else first * self.seq_len
        return self._parts[part][start : start + self.seq_len + 1]

    def _windows(self, ids: Array) -> int:
        """Return the number of examples in a part."""
        predicted = max(0, len(ids) - 1)
        return max(0, len(ids) - self.seq_len) if self.split == "train" else -(-predicted // self.seq_len)

    def _ids(self, path: PathLike, cache: PathLike | None, allow_binary: bool) -> Array:
        """Return the ids of one file [N], memory-mapped."""
        plain = packing(path) == "plain"
        as_bytes = isinstance(self.tokenizer, ByteTokenizer)
        ids: Array
        if plain and as_bytes:
            ids = np.memmap(path, dtype=np.uint8, mode="r")
        else:
            ids = tokens_of(path, self.tokenizer, Path(cache) if cache is not None else self._temporary())
        if as_bytes and not allow_binary:
            check_text(ids, path)
        return ids

    def _temporary(self) -> Path:
        folder = tempfile.mkdtemp(prefix="linnet-tokens-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)


def _parts(arrays: Sequence[Array], split: str, valid_fraction: float) -> list[Array]:
    """Return the part of each file in the split; a held-out part starts with the last token before it."""
    total = sum(map(len, arrays))
    cut = total - round(total * valid_fraction)  # the first held-out token of all files concatenated
    parts = []
    for ids, end in zip(arrays, accumulate(map(len, arrays)), strict=True):
        here = min(max(cut - (end - len(ids)), 0), len(ids))
        parts.append(ids[:here] if split == "train" else ids[max(here - 1, 0) :])
    return [part for part in parts if len(part) > 1]


def _check(files: Sequence[PathLike], seq_len: int, split: str, valid_fraction: float) -> None:
    if not files:
        raise ValueError("paths is an empty list; accepted: one text file or more")
    whole("seq_len", seq_len, 1)
    if split not in ("train", "valid"):
        raise unknown("split", split, ("train", "valid"))
    number("valid_fraction", valid_fraction, 0, 1)
