"""Where data sets are looked for: the environment first, then next to the repository, else nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.data import folders


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root in ("given", "shared/data"):
        (tmp_path / root / "mnist").mkdir(parents=True)
    (tmp_path / "shared/data/an4").mkdir()
    (tmp_path / "shared/data/file").touch()
    monkeypatch.setattr(folders, "REPOSITORY", tmp_path / "repository")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "given"))
    assert folders.data_folder("mnist") == tmp_path / "given" / "mnist"
    assert folders.data_folder("an4") == tmp_path / "shared" / "data" / "an4"
    assert folders.data_folder("none") is None
    assert folders.data_folder("file") is None
    monkeypatch.delenv("LINNET_DATA")
    assert folders.data_folder("mnist") == tmp_path / "shared" / "data" / "mnist"


def test_the_repository_is_the_folder_of_the_package() -> None:
    assert (folders.REPOSITORY / "linnet" / "data" / "folders.py").is_file()
