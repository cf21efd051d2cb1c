"""The seal of a committed run: a hash of its rows as a whole and one of every line, so that an edited row is named.

    OUT/manifest.json    {"format": 1, "sha256": of rows.jsonl, "lines": [12 hexadecimal digits, ...]}

A folder without the file is not sealed, and nothing is checked. The folder of a day run may grow after its seal: the
rows that were sealed come first, and later ones are not covered until it is sealed again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

from ...atomic import atomic
from ...errors import StateError
from ...json_file import read_json
from ...schema import Each, Record, Text, Whole, check
from .results import ROWS, row_name

MANIFEST = "manifest.json"
FORMAT = 1
DIGITS = 12
CONTENT = Record({"format": Whole(FORMAT, FORMAT), "sha256": Text(), "lines": Each(Text())})


def write_manifest(folder: Path) -> None:
    """Seal the rows of a folder as they are."""
    if not (folder / ROWS).is_file():
        raise StateError(f"{folder} has no {ROWS} to seal; accepted: the --out folder of `linnet reproduce`")
    data = (folder / ROWS).read_bytes()
    lines = [short(line) for line in data.splitlines()]
    with atomic(folder / MANIFEST) as file:
        content = {"format": FORMAT, "sha256": sha256(data).hexdigest(), "lines": lines}
        file.write(json.dumps(content, indent=0).encode() + b"\n")


def check_manifest(folder: Path, *, grows: bool = False) -> None:
    """Raise StateError if the folder is sealed and its rows are not those that were sealed, naming the first one.

    grows: rows may have been added since.
    """
    path, way_out = folder / MANIFEST, "restore it from the repository, or delete it"
    if not path.is_file():
        return
    sealed = check(read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError)
    rows = folder / ROWS
    data = rows.read_bytes() if rows.is_file() else b""
    if sha256(data).hexdigest() == sealed["sha256"]:
        return
    lines = data.splitlines()
    if grows and [short(line) for line in lines[: len(sealed["lines"])]] == sealed["lines"]:
        return
    problem = difference(lines, sealed["lines"], rows)
    raise StateError(
        f"{problem}; restore {ROWS} from the repository, or, if the change is meant, seal it with "
        f"`linnet report {folder} --seal`"
    )


def difference(lines: Sequence[bytes], sealed: Sequence[str], rows: Path) -> str:
    """Return the first line that is not as it was sealed."""
    for number, (line, expected) in enumerate(zip_longest(lines, sealed), 1):
        if line is None:
            return f"{rows} was edited: it ends after line {number - 1:,}, and {MANIFEST} has {len(sealed):,} rows"
        if expected is None:
            return f"{rows} was edited: line {number:,} ({named(line)}) is not in {MANIFEST}"
        if short(line) != expected:
            return f"{rows} was edited: line {number:,} ({named(line)}) is not the row that {MANIFEST} has there"
    return f"{rows} was edited: its lines end in other characters than those of {MANIFEST}"


def named(line: bytes) -> str:
    """Return the name of a row, as far as the line can be read."""
    try:
        return row_name(json.loads(line)["config"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "not a row"


def short(line: bytes) -> str:
    """Return the short hash of one line."""
    return sha256(line).hexdigest()[:DIGITS]


def joint_fingerprint(*hashes: str) -> str:
    """Return one hash of several folders' rows."""
    return sha256(" ".join(hashes).encode()).hexdigest()


def fingerprint(folder: Path) -> str:
    """Return the hash of a folder's rows, "" if there are none."""
    rows = folder / ROWS
    return sha256(rows.read_bytes()).hexdigest() if rows.is_file() else ""
