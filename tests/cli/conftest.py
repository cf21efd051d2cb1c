"""What the tests of training commands share: a small text, and a folder of their own to run in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import write_text


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "book.txt")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to runs/ of the folder one is in: not to that of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_DEBUG", raising=False)
