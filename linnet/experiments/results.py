"""Rows: what an experiment found, one JSON object to a line, appended whole and readable while it still runs.

    {"format", "config", "metrics", "seed", "seconds", "info", "commit", "versions", "machine"}

`config` is everything that decides the metrics, the seed included; its JSON with sorted names is the key of the row, so
that an experiment which was killed knows what it has. `seconds` and `info` may differ from one run to the next, the
metrics may not. A line is one write, flushed to the disk: a kill can tear the last line only, and Store cuts it off.
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
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import StateError, brief
from ..json_file import Line, read_lines
from ..lock import exclusive
from ..schema import Accepts, Number, Record, Table

Row = dict[str, Any]
FORMAT = 1
ROW = Record(
    {"format": Accepts(), "config": Table(Accepts()), "metrics": Table(Accepts())},
    {"seconds": Number(0), "info": Table(Accepts()), "versions": Table(Accepts()), "machine": Table(Accepts())},
    open=True,
)
PACKAGE = Path(__file__).resolve().parent.parent
_writing: set[str] = set()  # files that this process has a Store of


def make_row(
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    seconds: float,
    info: Mapping[str, Any] | None = None,
) -> Row:
    """A row of this process: its machine, its versions; numbers that are not finite become null, as JSON has it."""
    row = {"format": FORMAT, "config": dict(config), "metrics": dict(metrics), "seed": config.get("seed")}
    row |= {"seconds": round(seconds, 3), "info": dict(info or {})}
    return finite({**row, **about()})


def key(config: Mapping[str, Any]) -> str:
    """What a row is known by."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def finite(value: Any) -> Any:
    """The same value with None for every NaN and infinity in it."""
    if isinstance(value, Mapping):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


@cache
def about() -> dict[str, Any]:
    """Where the numbers of this process come from: commit of the package, versions, machine."""
    versions = {name: _version(name) for name in ("linnet", "torch", "numpy")}
    machine = {"name": _processor(), "machine": platform.machine(), "cores": os.cpu_count()}
    return {"commit": _commit(), "versions": {"python": platform.python_version(), **versions}, "machine": machine}


def read_rows(path: Path, *, damaged: list[str] | None = None) -> list[Row]:
    """The rows of a file, whether or not an experiment is writing it; a torn last line is not one of them.

    damaged: a list that gets a sentence for every line that is not a row; without it the first one is an error.
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
    """StateError unless every row belongs to this experiment."""
    for row in rows:
        found = row["config"].get("experiment")
        if found != experiment:
            raise StateError(f"{folder} holds rows of experiment {found}, not {experiment}; name another folder")


class Store:
    """The rows of one file, and the right to add to it, which one process at a time can have; use with `with`.

    The lock is that of the folder (linnet/lock.py). A file that was created and got no row is
    removed again when the block ends with an error.
    skip_damaged: lines that are no rows stay where they are and count as not there; else the first one is an error.
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
        self._keys = {key(row["config"]) for row in self._rows}

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._failed = kind is not None
        self.close()

    def close(self) -> None:
        """Give the right to write back."""
        self._open.close()

    def rows(self) -> list[Row]:
        return list(self._rows)

    def has(self, config: Mapping[str, Any]) -> bool:
        return key(config) in self._keys

    def append(self, row: Row) -> None:
        """Add one row; it is on the disk when this returns."""
        found = key(row["config"])
        if found in self._keys:
            raise ValueError(f"{self.path} has a row of {found} already; ask `has` before it is computed again")
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            reason = f"{written} of {len(line)} bytes fitted"
            os.fsync(self._file)
        except OSError as error:  # no space left, a quota, a disk that is gone
            written, reason = 0, error.strerror or str(error)
        if written != len(line):
            os.ftruncate(self._file, size)
            kept = f"the {len(self._rows)} rows before it are kept"
            raise OSError(f"a row could not be added to {self.path} ({reason}); {kept}: make room, then start again")
        self._rows.append(row)
        self._keys.add(found)

    def _close(self, is_new: bool) -> None:
        if is_new and self._failed and not os.fstat(self._file).st_size:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._file, data.rfind(b"\n") + 1)


def _problem(line: Line) -> str | None:
    """What is wrong with a line, or None when it is a row."""
    misfit = None if line.problem else ROW.misfit(line.value)
    if line.problem or misfit:
        why = line.problem or _words(*(misfit or ("", None, "")))
        return f"is not a row ({why}); take that line out, or name another folder"
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


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or "unknown")


def _commit() -> str | None:
    """Of the repository that the package is the top folder of, "+" after it with changes; None of an installed one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PACKAGE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if Path(top).resolve() != PACKAGE.parent:  # an environment that lies in a repository of something else
            return None
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else "")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
