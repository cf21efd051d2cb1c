"""The text that language models are compared on: its files, tokens, windows, and how often its bigrams occur.

    text = prepared(["auto"], vocab_size=2048, folder=out)    trains the tokenizer once, writes the tokens once
    text.windows("train", 256)                                a window at every token; "valid": without overlap
    text.bigrams()                                            counts of the training part: the whole minus the end

The end of the concatenated files is held out. The tokenizer is trained on all of the text, including the held-out end:
it is the same for every model. A vocabulary of 256 means bytes; more need the package tokenizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from torch import Tensor

from ...data import BPETokenizer, ByteTokenizer, TextSource, Tokenizer, data_folder, load_tokenizer, shipped_text
from ...data.files import packing, sample_hash
from .tasks import Bigrams, count_bigrams

HELD_OUT = 0.1  # share of the text
BYTES = 256  # vocabulary without a trained tokenizer
SETS = {  # name -> files in the data folder `text`
    "books": "books/*.txt.gz",
    "wikitext2": "wikitext2_*.txt.gz",
    "tinyshakespeare": "tinyshakespeare.txt.gz",
}
SHIPPED = "shipped"
COUNTED = 1024  # windows per batch when counting bigrams


@dataclass(frozen=True)
class Text:
    """Files, their tokenizer, and the folder that holds it and the tokens; plain values only."""

    files: tuple[str, ...]
    tokenizer_file: str
    folder: str

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.tokenizer_file)

    def windows(self, split: str, seq_len: int, *, held_out: float = HELD_OUT) -> TextSource:
        how = {"valid_fraction": held_out, "cache": self.folder}
        return TextSource(self.files, self.tokenizer(), seq_len, split, **how)  # type: ignore[arg-type]

    def bigrams(self, seq_len: int = BYTES) -> Bigrams:
        """Count the bigrams of the training part; `seq_len` only changes the size of a read."""
        whole, end = (self.windows("valid", seq_len, held_out=share) for share in (1.0, HELD_OUT))
        size = self.tokenizer().vocab_size
        return count_bigrams(_batches(whole), size).without(count_bigrams(_batches(end), size))


def prepared(text: Sequence[str], vocab_size: int, folder: Path) -> Text:
    """Return the text with its tokenizer and tokens in `folder`; existing files are reused."""
    files = files_of(text)
    hashes = [sample_hash(np.memmap(file, dtype=np.uint8, mode="r")) for file in files]
    name = sha256(" ".join([str(vocab_size), *hashes]).encode()).hexdigest()[:16]
    path = folder / f"tokenizer-{name}.json"
    if not path.is_file():
        tokenizer = ByteTokenizer() if vocab_size == BYTES else BPETokenizer.train_files(files, vocab_size)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(path)
    return Text(tuple(map(str, files)), str(path), str(folder))


def files_of(text: Sequence[str]) -> list[Path]:
    """Return the files of a name ("auto", "shipped" or one of SETS) or of paths, each checked."""
    if not text:
        raise ValueError(f"text is empty; accepted: auto, {SHIPPED}, {', '.join(SETS)}, or text files")
    name = _resolved(text)
    files = _set(name) if name else [Path(path) for path in text]
    for file in files:
        packing(file)
    return files


def called(text: Sequence[str]) -> str:
    """Return the name of a text in tables and rows: the name of the set, or the file names without folders."""
    return _resolved(text) or " ".join(Path(path).name for path in text)


def _resolved(text: Sequence[str]) -> str:
    """Return the name of a set, "" for files."""
    if tuple(text) == ("auto",):
        return "books" if data_folder("text") is not None else SHIPPED
    return text[0] if len(text) == 1 and text[0] in (*SETS, SHIPPED) else ""


def _set(name: str) -> list[Path]:
    if name == SHIPPED:
        return [shipped_text()]
    folder = data_folder("text")
    files = [] if folder is None else sorted(folder.glob(SETS[name]))
    if not files:
        raise FileNotFoundError(f"there is no data folder with {name}; set LINNET_DATA, or use {SHIPPED} or a file")
    return files


def _batches(source: TextSource) -> Iterator[dict[str, Tensor]]:
    for first in range(0, source.length, COUNTED):
        yield source.batch(range(first, min(first + COUNTED, source.length)))
