"""What the package ships: whole, unchanged, clean, and with its licences."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256

import numpy as np
import pytest

from linnet.data.assets import HERE, shipped_digits, shipped_text
from linnet.data.text import TextSource
from linnet.data.tokenizer import ByteTokenizer

README = (HERE / "README.md").read_text(encoding="utf-8")
FILES = {
    "moby_dick.txt.gz": (471_261, "94df78372f3baf0a4e728e5f109d3a7341d133929b3953f8851b9089358cdaf3"),
    "digits.npz": (44_656, "b3b9c8cc11d765ce4264d8748bf3edbafa5038d91c93cf713ddbd6ae8652b410"),
}
TEXT_SHA256 = "db9094e79d94bd5c415c26f538f6d462609a7982267530d480717c99a8961ac9"


def test_files_are_those_of_the_table() -> None:
    assert {path.name for path in HERE.iterdir() if path.suffix in (".gz", ".npz")} == FILES.keys()
    for name, (size, digest) in FILES.items():
        data = (HERE / name).read_bytes()
        assert (len(data), sha256(data).hexdigest()) == (size, digest)
        assert f"| {size:,} | {digest} |" in README


def test_licences_are_stated() -> None:
    for words in ("public domain", "CC0 1.0", "Attribution 4.0", "Alpaydin", "10.24432/C50P49"):
        assert words in README


def test_the_text_is_clean() -> None:
    data = gzip.decompress(shipped_text().read_bytes())
    assert len(data) == 1_192_679
    assert sha256(data).hexdigest() == TEXT_SHA256
    assert TEXT_SHA256 in README
    text = data.decode("ascii")  # and so clean UTF-8
    assert all(c == "\n" or c.isprintable() for c in text)
    assert text.startswith("CHAPTER 1. Loomings.\n\nCall me Ishmael.")
    assert text.endswith("only found another orphan.\n")
    assert len(re.findall(r"^CHAPTER \d+\. ", text, re.MULTILINE)) == 135
    assert not re.search(r"gutenberg|copyright|licen[cs]e agreement|https?:|  |\n\n\n\n", text, re.IGNORECASE)


def test_the_gzip_names_no_time_and_no_file() -> None:
    """So that packing it again gives the same bytes."""
    assert shipped_text().read_bytes()[3:8] == bytes(5)


def test_the_text_is_read_as_it_is() -> None:
    source = TextSource(shipped_text(), ByteTokenizer(), 64)
    assert source.length == 1_192_679 - 119_268 - 64
    assert ByteTokenizer().decode(source.batch([22])["tokens"][0]).startswith("Call me Ishmael. Some years ago--")


def test_digits_are_digits() -> None:
    images, labels = shipped_digits()
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((1797, 8, 8), np.uint8, (1797,), np.uint8)
    assert (int(images.min()), int(images.max())) == (0, 16)
    assert labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    nearest = [labels[:1500][np.abs(images[:1500].astype(int) - x).sum((1, 2)).argmin()] for x in images[1500:]]
    assert (np.array(nearest) == labels[1500:]).mean() > 0.9  # pixels and labels belong together: chance is 0.1


def test_digits_are_split_for_good() -> None:
    images, labels = shipped_digits()
    for split, part in (("train", slice(0, 1500)), ("test", slice(1500, 1797))):
        some, names = shipped_digits(split)
        assert np.array_equal(some, images[part])
        assert np.array_equal(names, labels[part])
    with pytest.raises(ValueError, match="unknown split 'tests'; did you mean 'test'"):
        shipped_digits("tests")
