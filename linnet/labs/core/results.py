"""Rows: the results of an experiment, one JSON object per line, appended atomically and readable while it runs.

    {"format", "config", "metrics", "seed", "seconds", "info", "commit", "versions", "machine"}

`config` is everything that determines the metrics, the seed included; its JSON with sorted names is the key of the row,
so that a killed experiment knows what it has. `seconds` and `info` may differ between runs, the metrics may not. A line
is one write, flushed to the disk: a kill can tear only the last line, and Store removes it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from ... import __version__
from ...errors import StateError, brief
from ...json_file import Line, finite_or_none, read_lines
from ...lock import exclusive
from ...processor import processor_name
from ...schema import Accepts, Number, Record, Table

Row = dict[str, Any]
ROWS = "rows.jsonl"
FORMAT = 1
ROW = Record(
    {"format": Accepts(), "config": Table(Accepts()), "metrics": Table(Accepts())},
    {"seconds": Number(0), "info": Table(Accepts()), "versions": Table(Accepts()), "machine": Table(Accepts())},
    open=True,
)
PACKAGE = Path(__file__).resolve().parents[2]
_writing: set[str] = set()  # files for which this process has a Store


def make_row(
    config: Mapping[str, Any], metrics: Mapping[str, Any], seconds: float, info: Mapping[str, Any] | None = None
) -> Row:
    """Return a row with the machine and versions of this process; numbers that are not finite become None."""
    row = {"format": FORMAT, "config": dict(config), "metrics": dict(metrics), "seed": config.get("seed")}
    row |= {"seconds": round(seconds, 3), "info": dict(info or {})}
    return finite_or_none({**row, **about()})


def core_seconds(row: Row) -> float:
    """Return what a row cost: its seconds of one core where they were measured, else its wall clock."""
    cpu = row["info"].get("cpu")
    return float(cpu if isinstance(cpu, int | float) else row["seconds"])


def key(config: Mapping[str, Any]) -> str:
    """Return the key of a row."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def row_name(config: Mapping[str, Any]) -> str:
    """Return the experiment of a row and its first plain settings, for messages."""
    plain = {name: value for name, value in config.items() if not isinstance(value, (dict, list, tuple))}
    words = [str(value) if name == "experiment" else f"{name} {value}" for name, value in plain.items()]
    return ", ".join(words[:5])


@cache
def about() -> dict[str, Any]:
    """Return the origin of this process's numbers: commit of the package, versions, machine."""
    versions = {"linnet": __version__, **{name: _version(name) for name in ("torch", "numpy")}}
    machine = {"name": processor_name(), "machine": platform.machine(), "cores": os.cpu_count()}
    return {"commit": _commit(), "versions": {"python": platform.python_version(), **versions}, "machine": machine}


def read_rows(path: Path, *, damaged: list[str] | None = None) -> list[Row]:
    """Return the rows of a file, whether or not an experiment is writing it; a torn last line is left out.

    damaged: a list that receives a sentence for every line that is not a row; without it the first one raises.
    """
    rows = []
    try:
        for line in read_lines(path):
            problem = _problem(line)
            if problem is None:
                rows.append(line.value)
            elif damaged is None:
                raise StateError(f"line {line.number} of {path} {problem}")
            else:
                damaged.append(f"line {line.number} of {path} {problem}")
    except OSError as error:
        raise StateError(f"{path} cannot be read ({error.strerror}); name the folder of an experiment") from None
    return rows


def check_experiment(rows: Iterable[Row], experiment: str, folder: Path) -> None:
    """Raise StateError unless every row belongs to this experiment."""
    for row in rows:
        other = row["config"].get("experiment")
        if other != experiment:
            raise StateError(f"{folder} holds rows of experiment {other}, not {experiment}; name another folder")


class Store:
    """The rows of one file, and the exclusive right to append to it; use with `with`.

    The lock is the folder's (linnet/lock.py). A file created here that got no row is removed when the block ends with
    an error.
    skip_damaged: ignore lines that are not rows and leave them in the file; otherwise the first one raises.
    """

    def __init__(self, path: str | os.PathLike[str], *, skip_damaged: bool = False) -> None:
        self.path, name, self._failed = Path(path), os.path.realpath(path), True
        if name in _writing:
            raise StateError(f"this process is writing {self.path} already; close that Store first")
        with ExitStack() as stack:
            stack.enter_context(exclusive(self.path.parent))
            stack.callback(_writing.discard, name)
            _writing.add(name)
            is_new = not self.path.exists()
            try:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            except OSError as error:
                raise ValueError(f"{self.path} cannot be written ({error.strerror}); name another folder") from None
            stack.callback(self._close, is_new)
            self._rows = read_rows(self.path, damaged=[] if skip_damaged else None)
            self._cut_torn_line()
            self._open, self._failed = stack.pop_all(), False
        self._by_key = {key(row["config"]): row for row in self._rows}

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._failed = kind is not None
        self.close()

    def close(self) -> None:
        """Release the file and its lock."""
        self._open.close()

    def rows(self) -> list[Row]:
        return list(self._rows)

    def has(self, config: Mapping[str, Any]) -> bool:
        return key(config) in self._by_key

    def get(self, config: Mapping[str, Any]) -> Row | None:
        """Return the row of a configuration, None if there is none."""
        return self._by_key.get(key(config))

    def append(self, row: Row) -> None:
        """Append one row; it is on the disk when this returns."""
        row_key = key(row["config"])
        if row_key in self._by_key:
            raise ValueError(f"{self.path} has a row of {row_key} already; check with `has` before computing it again")
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            reason = f"{written} of {len(line)} bytes were written"
            os.fsync(self._file)
        except OSError as error:  # no space left, a quota, a lost disk
            written, reason = 0, error.strerror or str(error)
        if written != len(line):
            os.ftruncate(self._file, size)
            kept = f"the {len(self._rows)} earlier rows are kept"
            raise OSError(f"a row could not be added to {self.path} ({reason}); {kept}: free space, then start again")
        self._rows.append(row)
        self._by_key[row_key] = row

    def _close(self, is_new: bool) -> None:
        if is_new and self._failed and not os.fstat(self._file).st_size:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._file, data.rfind(b"\n") + 1)


def _problem(line: Line) -> str | None:
    """Return what is wrong with a line, or None if it is a row."""
    misfit = None if line.problem else ROW.misfit(line.value)
    if line.problem or misfit:
        why = line.problem or _words(*(misfit or ("", None, "")))
        return f"is not a row ({why}); remove that line, or name another folder"
    if line.value["format"] != FORMAT:
        return (
            f"has format {brief(line.value['format'])} and this linnet reads {FORMAT}; "
            "name another folder, or read it with the linnet that wrote it"
        )
    return None


def _words(place: str, value: object, accepted: str) -> str:
    return f"{place.removeprefix('.') or 'it'} is {brief(value)} where {accepted} is accepted"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the package's repository, with "+" if it has changes; None for an installed package."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PACKAGE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != PACKAGE.parent:  # a virtual environment inside another repository
            return None
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
