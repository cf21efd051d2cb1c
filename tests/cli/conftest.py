"""What the tests of training commands share: a small text, and a temporary folder to run in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import train_runs, write_text


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "book.txt")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, and one with a BPE tokenizer, in one folder; tests only read them."""
    folder = tmp_path_factory.mktemp("runs")
    book = str(write_text(folder / "book.txt"))
    kinds: dict[str, tuple[str, ...]] = {
        "text": ("text", book, "--seq-len", "32"),
        "bpe": ("text", book, "--seq-len", "16", "--tokenizer", "bpe", "--vocab-size", "300"),
        "image": ("image",),
        "speech": ("speech",),
        "stream": ("stream", "--context", "64", "--horizon", "2"),
    }
    return train_runs(folder, kinds)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a temporary folder, because runs go to runs/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_DEBUG", raising=False)
