"""Files in pieces: plain, gzip and bzip2 alike, UTF-8 across the seams, damage named, writing whole or not at all."""

from __future__ import annotations

import bz2
import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.atomic import atomic
from linnet.data import files
from linnet.data.files import byte_pieces, check_text, packing, path_list, sample_hash, text_pieces

PACK = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE", 7)


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.usefixtures("small_pieces")
def test_every_packing_reads_the_same(tmp_path: Path, packed: str) -> None:
    text = "A whale — 鯨 — is a whale;\n\nno fish,  though. " * 3
    path = tmp_path / "any name"
    path.write_bytes(PACK[packed](text.encode()))
    assert packing(path) == packed
    assert b"".join(byte_pieces(path)) == text.encode()
    pieces = list(text_pieces(path))
    assert "".join(pieces) == text
    assert len(pieces) > 5


@given(text=st.text(st.sampled_from(" \nab—鯨🐋"), min_size=1, max_size=60))
def test_pieces_end_before_single_spaces_or_hold_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("pieces") / "t"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE", 11)
        pieces = list(text_pieces(path))
    assert "".join(pieces) == text
    for piece, after in pairwise(pieces):
        cut = after.startswith(" ") and not after[1:2].isspace() and not piece[-1:].isspace()
        assert cut or not files.SEAM.search(piece)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("data", "at"), [(b"0123456789\xff", 10), (b"01234\xe2\x82x", 5), (b"0123456789\xf0\x9f\x90", 10)]
)
def test_the_byte_that_is_not_utf8_is_named(tmp_path: Path, data: bytes, at: int) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=rf"t\.txt is not UTF-8: byte {at} is {data[at]:#04x} .*; accepted: UTF-8 text"
    ):
        list(text_pieces(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.txt; accepted: text files"):
        packing(tmp_path / "none.txt")
    with pytest.raises(IsADirectoryError, match="is a folder; accepted: a text file"):
        packing(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "empty.bz2").write_bytes(bz2.compress(b""))
    for name in ("empty", "empty.gz", "empty.bz2"):
        with pytest.raises(ValueError, match=rf"{name} is empty; accepted: a file with text in it"):
            list(byte_pieces(tmp_path / name))


@pytest.mark.parametrize("packed", ["gzip", "bzip2"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_packing_is_named(tmp_path: Path, packed: str, damage: str) -> None:
    data = PACK[packed](np.random.default_rng(0).bytes(5000))
    path = tmp_path / "t"
    path.write_bytes(data[:-100] if damage == "cut" else data[:2000] + bytes(20) + data[2020:])
    with pytest.raises(ValueError, match=rf"t is a damaged {packed} file \(.+\); download or compress it again"):
        list(byte_pieces(path))


def test_a_text_that_begins_like_bzip2_is_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("BZh is how such a file begins", encoding="utf-8")
    assert packing(tmp_path / "t") == "plain"


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), atomic(path) as file:
        file.write(bytes(1 // (file.write(b"half") - 4)))
    assert path.read_text(encoding="utf-8") == "old"
    with atomic(path) as file:
        file.write(b"new")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [1, 1000, files.BLOCK * files.BLOCKS, files.BLOCK * files.BLOCKS + 1, 20_000_000])
def test_the_hash_sees_size_and_both_ends(size: int) -> None:
    data = np.zeros(size, np.uint8)
    seen = {sample_hash(data), sample_hash(np.zeros(size + 1, np.uint8))}
    for at in sorted({0, size // 2 if size < 10_000 else files.BLOCK - 1, size - 1}):
        changed = data.copy()
        changed[at] = 1
        seen.add(sample_hash(changed))
    assert len(seen) == 2 + len({0, size // 2 if size < 10_000 else files.BLOCK - 1, size - 1})


def test_all_of_a_small_content_is_hashed() -> None:
    data = np.zeros(500, np.uint8)
    assert len({sample_hash(np.where(np.arange(500) == i, 1, data).astype(np.uint8)) for i in range(500)}) == 500


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"text\x00text", "1 NUL bytes"),
        (b"\x01\x02\x03abc", "50% control bytes"),
        ("text".encode("utf-16"), "NUL bytes"),
    ],
)
def test_binary_data_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=f"f has .*{what}: it looks like binary data; .* pass allow_binary=True"):
        check_text(np.frombuffer(data, np.uint8), "f")


@pytest.mark.parametrize(
    "data", ["naïve — 東京 🐋".encode(), b"\t\n\r\n\x0c", "é".encode("latin-1"), b"\x1b[1mbold\x1b[0m"]
)
def test_texts_of_all_sorts_pass(data: bytes) -> None:
    check_text(np.frombuffer(data, np.uint8), "f")


def test_one_path_or_several() -> None:
    assert path_list("ab") == ["ab"]
    assert path_list(Path("a")) == [Path("a")]
    assert path_list(("a", Path("b"))) == ["a", Path("b")]
