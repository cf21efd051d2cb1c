"""Read JSON from files that may be damaged or hostile, within the limits of `limits.py`.

    value = read_json(path, "copy it again")                                    any JSON value
    for line in read_lines(path): line.number, line.value, line.problem         a damaged line affects only itself

Every failure (too large, too deep, not UTF-8, a duplicate name, NaN, a number beyond 64 bits) raises one ValueError, or
the subclass given, with the file, the problem and the way out. `schema.py` describes which values are accepted.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from .errors import brief
from .limits import LIMITS

PathLike = str | os.PathLike[str]
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Line(NamedTuple):
    """A line of a JSON Lines file: its value, or the problem with it."""

    number: int  # from 1
    value: Any
    problem: str | None


def read_json(path: PathLike, way_out: str, *, refuse: type[ValueError] = ValueError, nan: bool = False) -> Any:
    """Return the JSON value in a file; `way_out` ends every error message."""
    try:
        size = os.stat(path).st_size
        data = Path(path).read_bytes() if size <= LIMITS.JSON_BYTES else b""
    except OSError as error:
        raise refuse(f"{path} cannot be read ({error.strerror or error}); {way_out}") from None
    if size > LIMITS.JSON_BYTES:
        raise refuse(f"{path} has {size:,} bytes; accepted: JSON of {LIMITS.JSON_BYTES:,} at most; {way_out}")
    return parse_json(data, path, way_out, refuse=refuse, nan=nan)


def parse_json(
    text: str | bytes, where: object, way_out: str, *, refuse: type[ValueError] = ValueError, nan: bool = False
) -> Any:
    """Parse JSON text; `where` names its source in errors, `nan` accepts NaN and infinity."""
    try:
        return _parse(text, nan)
    except (ValueError, RecursionError) as error:
        raise refuse(f"{where} is not JSON that can be read ({_reason(error)}); {way_out}") from None


def read_object(
    path: PathLike, way_out: str, *, refuse: type[ValueError] = ValueError, nan: bool = False
) -> dict[str, Any]:
    """Return the JSON object in a file; keywords as in `read_json`."""
    value = read_json(path, way_out, refuse=refuse, nan=nan)
    if not isinstance(value, dict):
        raise refuse(f"{path} holds a JSON {kind_of(value)}; accepted: an object; {way_out}")
    return value


def read_lines(path: PathLike, *, nan: bool = False) -> Iterator[Line]:
    """Yield every line that ends in a newline, valid or damaged; skip a last line without one."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LIMITS.LINE_BYTES):
            number += 1
            if line.endswith(b"\n"):
                yield _line(number, line, nan)
            elif len(line) == LIMITS.LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LIMITS.LINE_BYTES)
                yield Line(number, None, f"it is longer than {LIMITS.LINE_BYTES:,} bytes")


def as_json(value: Any) -> Any:
    """Return the value after a round trip through JSON: tuples become lists, keys become strings."""
    return json.loads(json.dumps(value))


def finite_or_none(value: Any) -> Any:
    """Return the value with None for every NaN and infinity inside it, since JSON has neither."""
    if isinstance(value, Mapping):
        return {name: finite_or_none(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def kind_of(value: object) -> str:
    """Return the JSON name of a value's type."""
    names = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
    return names.get(type(value), "null")


def _line(number: int, line: bytes, nan: bool) -> Line:
    try:
        return Line(number, _parse(line, nan), None)
    except (ValueError, RecursionError) as error:
        return Line(number, None, _reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {LIMITS.JSON_DEPTH} levels"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return str(error)


def _parse(text: str | bytes, nan: bool) -> Any:
    if len(text) > LIMITS.JSON_BYTES:
        raise ValueError(f"it has {len(text):,} bytes, and at most {LIMITS.JSON_BYTES:,} are accepted")
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    items = 1 + sum(map(text.count, ",[{"))  # an upper bound: characters inside strings count too
    if items > LIMITS.JSON_ITEMS:
        raise ValueError(f"it has {items:,} values, and at most {LIMITS.JSON_ITEMS:,} are accepted")
    number = float if nan else _finite
    value = json.loads(text, parse_constant=number, parse_float=number, parse_int=_integer, object_pairs_hook=_object)
    _check_depth(value)
    if SURROGATE.search(text):  # a lone surrogate is valid JSON but cannot be encoded as UTF-8
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("one of its strings has a lone surrogate") from None
    return value


def _check_depth(value: Any) -> None:
    level: Iterable[Any] = [value]
    for _ in range(LIMITS.JSON_DEPTH + 1):
        level = [x for outer in level for x in _values(outer) if isinstance(x, dict | list)]
        if not level:
            return
    raise RecursionError


def _values(outer: Any) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        duplicate = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"it has the name {brief(duplicate)} twice")
    return value


def _integer(text: str) -> int:
    if len(text) > LIMITS.JSON_DIGITS + 1 or not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError(f"the number {text[:24]}... does not fit in 64 bits")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {text[:24]} is not finite")
    return value
