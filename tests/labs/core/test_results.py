"""Rows on the disk: whole lines only, one writer at a time, what was there is found again."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.errors import StateError
from linnet.labs.core import Row, Store, make_row, read_rows
from linnet.labs.core.results import PACKAGE, about


def row(i: int, **metrics: float) -> Row:
    return make_row({"name": "a", "i": i, "seed": 7}, metrics or {"loss": i / 3}, 0.1234567)


def filled(path: Path, count: int = 3) -> Path:
    with Store(path) as store:
        for i in range(count):
            store.append(row(i))
    return path


def test_a_row_says_what_where_and_with_what() -> None:
    result = row(1)
    assert result["config"] == {"name": "a", "i": 1, "seed": 7}
    assert (result["seed"], result["seconds"], result["format"], result["info"]) == (7, 0.123, 1, {})
    assert result["versions"]["torch"]
    assert result["machine"]["cores"] == os.cpu_count()


def test_the_commit_is_that_of_the_package() -> None:
    git = ["git", "-C", str(PACKAGE), "rev-parse", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the package is not in a repository")
    assert str(about()["commit"]).rstrip("+") == done.stdout.strip()


def test_what_is_not_finite_is_null() -> None:
    result = make_row({"seed": 0}, {"loss": math.inf, "parts": [1.0, math.nan], "by": {"u5": -math.inf}}, 0.0)
    assert result["metrics"] == {"loss": None, "parts": [1.0, None], "by": {"u5": None}}


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = filled(tmp_path / "new" / "rows.jsonl")
    with Store(path) as store:
        assert store.rows() == [row(0), row(1), row(2)] == read_rows(path)
        assert store.has({"seed": 7, "i": 2, "name": "a"})
        assert not store.has({"seed": 7, "i": 3, "name": "a"})
    assert [json.loads(line)["metrics"]["loss"] for line in path.read_text().splitlines()] == [0, 1 / 3, 2 / 3]


@pytest.mark.parametrize("kept", [1, 40])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, kept: int) -> None:
    path = filled(tmp_path / "rows.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[0][:kept])
    assert len(read_rows(path)) == 3
    assert path.read_bytes() != whole  # reading alone changes nothing
    with Store(path) as store:
        assert len(store.rows()) == 3
        assert path.read_bytes() == whole
        store.append(row(3))
    assert [result["config"]["i"] for result in read_rows(path)] == [0, 1, 2, 3]


def test_a_file_that_is_one_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"format": 1, "conf')
    assert read_rows(path) == []
    with Store(path) as store:
        assert store.rows() == []
    assert path.read_bytes() == b""


def test_one_writer_at_a_time_also_between_processes(tmp_path: Path) -> None:
    path = filled(tmp_path / "rows.jsonl")
    before = path.read_bytes()
    code = f"from linnet.labs.core import Store; Store({str(path)!r})"
    with Store(path):
        with pytest.raises(StateError, match=r"this process is writing .* already; close that Store first"):
            Store(path)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"is in use by process {os.getpid()}" in done.stderr
    assert path.read_bytes() == before
    Store(path).close()  # free again


def test_a_row_is_written_once(tmp_path: Path) -> None:
    path = filled(tmp_path / "rows.jsonl")
    with Store(path) as store, pytest.raises(ValueError, match=r"has a row of .*already"):
        store.append(row(1, loss=9.0))
    assert len(read_rows(path)) == 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("not json", "line 2 of .* is not a row .*; remove that line"),
        ("[1, 2]", "line 2 of .* is not a row"),
        ('{"format": 1, "config": {}}', "line 2 of .* is not a row"),
        ('{"format": 2, "config": {}, "metrics": {}}', "line 2 of .* has format 2 and this linnet reads 1"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, line: str, expected: str) -> None:
    path = filled(tmp_path / "rows.jsonl", count=1)
    path.write_text(path.read_text() + line + "\n" + '{"torn')
    before = path.read_bytes()
    with pytest.raises(StateError, match=expected):
        Store(path)
    with pytest.raises(StateError, match=expected):
        read_rows(path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"file is a file; accepted: a folder; choose another path"):
        Store(tmp_path / "file" / "rows.jsonl")
    with pytest.raises(StateError, match=r"cannot be read .No such file"):
        read_rows(tmp_path / "rows.jsonl")
