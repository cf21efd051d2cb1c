"""The text of the language models: which files, what is held out, and counts of the training part only."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from linnet.data import shipped_text
from linnet.labs.recall.language_text import HELD_OUT, called, files_of, prepared
from tests.cli.command import WORDS, write_text


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """A plain file and a packed one; the end of the second is held out."""
    packed = tmp_path / "b.txt.gz"
    packed.write_bytes(gzip.compress((" ".join(reversed(WORDS)) * 40).encode()))
    return [str(write_text(tmp_path / "a.txt", 300)), str(packed)]


def test_bigrams_are_those_of_the_training_part(two: list[str], tmp_path: Path) -> None:
    text = prepared(two, 256, tmp_path / "tokens")
    first, second = Path(two[0]).read_bytes(), gzip.decompress(Path(two[1]).read_bytes())
    end = round((len(first) + len(second)) * HELD_OUT)
    counts = Counter(pairwise(first)) + Counter(pairwise(second[:-end]))
    result = text.bigrams()
    assert {divmod(int(p), 256): int(n) for p, n in zip(result.pairs, result.counts, strict=True)} == counts
    assert all(a.equal(b) for a, b in zip(result[:2], text.bigrams(7)[:2], strict=True))


def test_the_tokenizer_is_learned_once(two: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    text = prepared(two, 300, folder)
    assert 256 < text.tokenizer().vocab_size <= 300
    text.windows("train", 8)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = prepared(two, 300, folder)
    again.windows("valid", 8)
    assert again == text
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert prepared(two, 256, folder).tokenizer_file != text.tokenizer_file
    assert prepared(two[:1], 300, folder).tokenizer_file != text.tokenizer_file


def test_texts_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text" / "books").mkdir(parents=True)
    for name in ("b", "a"):
        (tmp_path / "text" / "books" / f"{name}.txt.gz").write_bytes(gzip.compress(b"Call me Ishmael."))
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    assert [path.name for path in files_of(["auto"])] == ["a.txt.gz", "b.txt.gz"]
    assert called(["auto"]) == called(["books"]) == "books"
    assert files_of(["shipped"]) == [shipped_text()]
    assert called(["some/where/x.txt", "y.txt"]) == "x.txt y.txt"  # rows speak of no machine
    with pytest.raises(FileNotFoundError, match="no data folder with tinyshakespeare; set LINNET_DATA, or use shipped"):
        files_of(["tinyshakespeare"])


def test_bad_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere\.txt"):
        files_of(["nowhere.txt"])
    with pytest.raises(ValueError, match="text is empty; accepted: auto, shipped, books"):
        files_of([])
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match="is empty"):
        files_of([str(tmp_path / "empty.txt")])
