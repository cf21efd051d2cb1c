"""Read CSV files into float32 [N,C], once, in constant memory: plain, .gz, or a member of a .zip.

Columns are numeric when every value of the first rows is a number or missing; the others (dates, names) are skipped and
named. A missing value (empty, NA, NaN, null, ?, or not finite) is an error with the row, the column and how many there
are, unless missing="forward" (the last value seen; rows before a column's first value are dropped) or "drop" (the row).
With a cache folder the numbers go to a raw little-endian file next to a JSON note and are memory-mapped from there. The
note has the crc32 of both: a damaged cache is rebuilt.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, TypeAlias, cast

import numpy as np

from ..atomic import atomic
from ..checksum import crc32_of_bytes, crc32_of_file, crc32_of_json
from ..errors import Option, OptionError, unknown
from ..json_file import read_object
from .zip_file import DAMAGED, reason

Array: TypeAlias = "np.ndarray[Any, Any]"
PathLike: TypeAlias = "str | os.PathLike[str]"

VERSION = 2  # of the cache
PIECE = 4096  # rows parsed at a time
CELLS = 1 << 22  # cells parsed at a time: fewer rows if they are very wide
LINE = 1 << 22  # characters of the longest line
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
WAYS = ("error", "forward", "drop")


class Table(NamedTuple):
    """A CSV file as numbers."""

    values: Array  # [N,C] float32, memory-mapped when it was read with a cache
    columns: tuple[str, ...]
    skipped: tuple[str, ...]  # columns that are not numeric, and the time column


def read_csv(
    path: PathLike,
    columns: Sequence[str] | None = None,
    *,
    time_column: str | None = None,
    missing: str = "error",
    cache: PathLike | None = None,
) -> Table:
    """Read the numeric columns, or `columns` in that order; `time_column` is left out even if numeric.

    Data rows are counted from 1, below the names; names come from the first row unless it is all numbers: then columns
    are "0", "1", ... A zip member is named as if the archive were a folder: `archive.zip/member.csv`.
    """
    if missing not in WAYS:
        raise unknown("way to handle missing values", missing, WAYS)
    file, wanted = Path(path), None if columns is None else list(columns)
    if cache is None:
        with _open(file) as text:
            reader = _Reader(_rows(text), file, wanted, time_column, missing)
            return Table(np.concatenate([*reader.pieces()]), reader.names, reader.skipped)
    note = {"version": VERSION, "columns": wanted, "time_column": time_column, "missing": missing}
    note["source"] = _identity(file)
    base = Path(cache) / f"{file.name}.{sha256(json.dumps(note).encode()).hexdigest()[:16]}"
    return _read_cache(base, note) or _write_cache(base, note, file)


class _Reader:
    """Parse the chosen columns of a CSV into pieces [n,C] float32 and handle missing values."""

    def __init__(
        self,
        rows: Iterator[list[str]],
        path: Path,
        columns: Sequence[str] | None,
        time_column: str | None,
        missing: str,
    ) -> None:
        self.path, self.missing = path, missing
        self.number, self.kept = 0, 0  # rows of data read, rows yielded
        start = list(islice(rows, 1))
        if not start:
            raise ValueError(f"{path} is empty; accepted: a CSV file with a row of names and rows of numbers")
        self.piece = max(16, min(PIECE, CELLS // len(start[0])))
        start += islice(rows, self.piece - 1)
        header = any(_number(cell) is None for cell in start[0])
        names = [cell.strip() for cell in start[0]] if header else [str(i) for i in range(len(start[0]))]
        start = start[header:]
        if not start:
            raise ValueError(f"{path} has names and no rows; accepted: rows of numbers below them")
        self.all_names = names
        self.index = self._choose(start, columns, time_column)
        self.names = tuple(names[i] for i in self.index)
        self.skipped = tuple(name for name in names if name not in self.names)
        self.rows = chain(start, rows)
        self.last = np.full(len(self.index), np.nan)  # the row before, for missing="forward"

    def _choose(self, rows: list[list[str]], columns: Sequence[str] | None, time_column: str | None) -> list[int]:
        for name in [*(columns or ()), *([time_column] if time_column else [])]:
            if name not in self.all_names:
                raise unknown(f"column of {self.path}", name, self.all_names)
        if columns is not None:
            return [self.all_names.index(name) for name in columns]
        chosen = []
        for i, name in enumerate(self.all_names):
            numbers = [_number(row[i]) for row in rows if i < len(row)]
            if name != time_column and None not in numbers and not all(x != x for x in numbers):  # NaN is missing
                chosen.append(i)
        if not chosen:
            raise ValueError(f"{self.path} has no column of numbers among {self.all_names}; accepted: at least one")
        return chosen

    def pieces(self) -> Iterator[Array]:
        gaps, first = 0, ""
        while rows := list(islice(self.rows, self.piece)):
            values = np.array([self._row(row, self.number + i) for i, row in enumerate(rows, start=1)])
            empty = np.isnan(values)
            if self.missing == "error" and empty.any():
                row, column = np.argwhere(empty)[0]
                first = first or f"the first in data row {self.number + row + 1}, column {self.names[column]!r}"
                gaps += int(empty.sum())
            self.number += len(rows)
            values = self._forward(values) if self.missing == "forward" else values
            values = values[~np.isnan(values).any(1)]
            self.kept += len(values)
            yield values.astype(np.float32)
        if gaps:
            raise OptionError(
                f"{self.path} has {gaps} missing values, {first}",
                Option("missing", "forward", "repeat the value before"),
                Option("missing", "drop", "skip such rows"),
                otherwise="choose other columns",
            )
        if not self.kept:
            raise ValueError(
                f"{self.path} has no row without a missing value; accepted: at least one; choose fewer columns"
            )

    def _row(self, row: list[str], number: int) -> list[float]:
        if len(row) != len(self.all_names):
            wanted = len(self.all_names)
            raise ValueError(
                f"{self.path} data row {number} has {len(row)} fields, the first row {wanted}; correct that row"
            )
        out = []
        for i in self.index:
            value = _number(row[i])
            if value is None:
                where = f"data row {number}, column {self.all_names[i]!r}"
                raise ValueError(
                    f"{self.path} {where} has {row[i]!r}, which is not a number; correct it or choose other columns"
                )
            out.append(value)
        return out

    def _forward(self, values: Array) -> Array:
        """Fill each gap with the value above it; gaps before a column's first value remain."""
        filled = np.concatenate([self.last[None], values])  # [n + 1, C]
        rows = np.where(np.isnan(filled), 0, np.arange(len(filled))[:, None])
        filled = np.take_along_axis(filled, np.maximum.accumulate(rows, axis=0), axis=0)
        self.last = filled[-1]
        return filled[1:]


def _number(cell: str) -> float | None:
    """Return the number in a cell, NaN if it is missing or not finite, None if it is not a number."""
    try:
        value = float(cell)
    except ValueError:
        return float("nan") if cell.strip().lower() in MISSING else None
    return value if abs(value) < np.finfo(np.float32).max else float("nan")


def _rows(text: TextIO) -> Iterator[list[str]]:
    """Yield rows that are not blank; the delimiter is the most frequent of , ; and tab in the first line."""
    first = text.readline(LINE)
    delimiter = max(",;\t", key=first.count)
    return (row for row in csv.reader(chain([first], _lines(text)), delimiter=delimiter) if row)


def _lines(text: TextIO) -> Iterator[str]:
    """Yield lines; refuse one that is too long before it fills the memory."""
    while line := text.readline(LINE):
        if len(line) == LINE:
            raise csv.Error(f"a line is longer than {LINE:,} characters")
        yield line


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    archive = next((p for p in path.parents if p.suffix == ".zip" and p.is_file()), None)
    if archive is None and not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; accepted: .csv, .csv.gz or archive.zip/member.csv")
    try:
        with ExitStack() as stack:
            data: IO[bytes]
            if archive is not None:
                data = _member(stack.enter_context(zipfile.ZipFile(archive)), path.relative_to(archive).as_posix())
            else:
                data = stack.enter_context(_decompress(path))
            yield stack.enter_context(io.TextIOWrapper(data, encoding="utf-8-sig", newline=""))
    except (*DAMAGED, OSError, UnicodeDecodeError, csv.Error) as error:
        if isinstance(error, OSError) and error.filename is not None:  # an error of the disk, not of the archive
            raise
        raise ValueError(
            f"{path} is damaged or not a CSV file ({reason(error)}); accepted: UTF-8 text, plain or compressed"
        ) from error


def _decompress(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    if name not in archive.namelist():
        raise unknown(f"member of {archive.filename}", name, [n for n in archive.namelist() if n.endswith(".csv")])
    return archive.open(name)


def _identity(path: Path) -> str:
    """Return an identity that changes with the file: its path, size and modification time."""
    file = next((p for p in (path, *path.parents) if p.is_file()), path)
    stat = file.stat() if file.is_file() else None
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}" if stat else str(path)


def _read_cache(base: Path, note: dict[str, Any]) -> Table | None:
    """Return the cached table, or None if it is damaged or of another file or other options."""
    try:
        cached = read_object(base.with_name(base.name + ".json"), "it is built again")
        crc32, numbers = cached.pop("crc32"), base.with_name(base.name + ".f32")
        good = crc32 == crc32_of_json(cached, crc32_of_file(numbers))
        rows, names, skipped = cached.pop("rows"), tuple(cached.pop("names")), tuple(cached.pop("skipped"))
        complete = good and numbers.stat().st_size == rows * len(names) * 4
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return _map(base, rows, names, skipped) if complete and cached == note else None


def _write_cache(base: Path, note: dict[str, Any], file: Path) -> Table:
    """Parse into the cache: the numbers first, then the note that marks them complete."""
    base.parent.mkdir(parents=True, exist_ok=True)
    rows, crc32 = 0, "0"
    with _open(file) as text, atomic(base.with_name(base.name + ".f32")) as out:
        reader = _Reader(_rows(text), file, note["columns"], note["time_column"], note["missing"])
        for piece in reader.pieces():
            data = piece.astype("<f4").tobytes()
            out.write(data)
            rows, crc32 = rows + len(piece), crc32_of_bytes([data], crc32)
    note = note | {"rows": rows, "names": reader.names, "skipped": reader.skipped}
    with atomic(base.with_name(base.name + ".json")) as out:
        out.write(json.dumps(note | {"crc32": crc32_of_json(note, crc32)}).encode())
    return _map(base, rows, reader.names, reader.skipped)


def _map(base: Path, rows: int, names: tuple[str, ...], skipped: tuple[str, ...]) -> Table:
    values = np.memmap(base.with_name(base.name + ".f32"), dtype="<f4", mode="r", shape=(rows, len(names)))
    return Table(values, names, skipped)
