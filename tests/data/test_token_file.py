"""Token files: safetensors that are mapped when they fit, and built again when anything about them is off."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from linnet.data import files
from linnet.data.bpe import BPETokenizer
from linnet.data.token_file import HEADER, read_tokens, token_dtype, tokens_of, write_tokens
from linnet.data.tokenizer import ByteTokenizer, Tokenizer

TEXT = "It is not down in any map; true places never are. " * 40
BPE = BPETokenizer.train([TEXT], 300)


class Counting(Tokenizer):
    """Characters as ids, counting its calls; `shift` makes the ids wrong."""

    name, vocab_size = "counting", 1000

    def __init__(self, shift: int = 0) -> None:
        self.calls, self.shift = 0, shift

    def encode(self, text: str) -> list[int]:
        self.calls += 1
        return [ord(c) + self.shift for c in text]

    def decode(self, ids: object) -> str:
        raise NotImplementedError

    def to_json(self) -> str:
        return '{"kind": "counting"}'

    @classmethod
    def from_json(cls, text: str) -> Counting:
        return cls()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "t.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_dtypes_are_as_narrow_as_the_vocabulary_allows() -> None:
    sizes = {256: "|u1", 257: "<u2", 65536: "<u2", 65537: "<u4"}
    assert {size: token_dtype(size).str for size in sizes} == sizes


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE], ids=["byte", "bpe"])
def test_ids_are_those_of_the_whole_text(
    text: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the pieces: they are cut where no token goes across."""
    monkeypatch.setattr(files, "PIECE", 64)
    ids = tokens_of(text, tokenizer, tmp_path / "cache")
    assert isinstance(ids, np.memmap)
    assert ids.dtype == token_dtype(tokenizer.vocab_size)
    assert ids.tolist() == tokenizer.encode(TEXT)


def test_the_file_is_a_safetensors_file_that_says_whose_it_is(text: Path, tmp_path: Path) -> None:
    tokens_of(text, BPE, tmp_path / "new" / "cache")
    file = only_file(tmp_path / "new" / "cache")
    assert file.name == f"t.txt.{BPE.fingerprint}.tokens"
    with safe_open(file, framework="np") as opened:
        assert opened.get_tensor("tokens").tolist() == BPE.encode(TEXT)
        meta = opened.metadata()
    assert (meta["format"], meta["format_version"]) == ("linnet-tokens", "2")
    assert meta["tokenizer"] == BPE.fingerprint


def test_a_whole_file_is_used_again(text: Path, tmp_path: Path) -> None:
    tokenizer = Counting()
    first = tokens_of(text, tokenizer, tmp_path / "cache")
    again = tokens_of(text, tokenizer, tmp_path / "cache")
    assert tokenizer.calls == len(list(files.text_pieces(text)))
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    "damage", ["cut", "one byte less", "longer", "changed id", "changed header", "empty", "foreign"]
)
def test_a_damaged_file_is_built_again(text: Path, tmp_path: Path, damage: str) -> None:
    wanted = tokens_of(text, BPE, tmp_path / "cache").tolist()
    file = only_file(tmp_path / "cache")
    data = file.read_bytes()
    changed = {
        "cut": data[: len(data) // 2 * 2 - 40],
        "one byte less": data[:-1],
        "longer": data + bytes(2),
        "changed id": data[: HEADER + 100] + bytes([data[HEADER + 100] ^ 1]) + data[HEADER + 101 :],
        "changed header": data.replace(b"linnet-tokens", b"linnet-tokenz"),
        "empty": b"",
        "foreign": b"\x00" * len(data),
    }[damage]
    assert changed != data
    file.unlink()
    file.write_bytes(changed)
    assert tokens_of(text, BPE, tmp_path / "cache").tolist() == wanted
    assert file.read_bytes() == data


def test_a_changed_id_is_seen_in_a_file_of_any_size(tmp_path: Path) -> None:
    """Also between the blocks that a sample of a large file would look at."""
    file, dtype, meta = tmp_path / "a.tokens", token_dtype(256), {"tokenizer": "x"}
    write_tokens(file, dtype, meta, iter([np.zeros(17 << 20, np.uint8)]))
    assert read_tokens(file, dtype, meta) is not None
    with open(file, "r+b") as opened:
        opened.seek(HEADER + (1 << 16) + 100)
        opened.write(b"\x01")
    assert read_tokens(file, dtype, meta) is None


def test_another_text_of_the_same_name_or_a_later_change_is_read_again(text: Path, tmp_path: Path) -> None:
    tokenizer = Counting()
    tokens_of(text, tokenizer, tmp_path / "cache")
    calls = tokenizer.calls
    text.write_text(TEXT.swapcase(), encoding="utf-8")
    assert tokens_of(text, tokenizer, tmp_path / "cache").tolist() == [ord(c) for c in TEXT.swapcase()]
    assert tokenizer.calls == 2 * calls
    os.utime(text, ns=(0, 0))
    tokens_of(text, tokenizer, tmp_path / "cache")
    assert tokenizer.calls == 3 * calls


def test_nothing_is_left_behind_by_a_text_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(b"good " * 300_000 + b"\xff"))  # the bad byte is in the second piece
    with pytest.raises(ValueError, match="byte 1500000 is 0xff"):
        tokens_of(path, Counting(), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_id_outside_the_vocabulary_is_named(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token id 1023 at position 0 is outside the vocabulary; accepted: 0 to 999"):
        tokens_of(text, Counting(shift=950), tmp_path / "cache")
