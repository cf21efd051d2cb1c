"""Validate the values of a JSON file against a schema; the error names the first field that does not match.

check(value, Record({"step": Whole(0), "loss": Maybe(Number())}), path, "copy it again")
ValueError: runs/a/trainer.json: step is -1; accepted: a whole number from 0; copy it again
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from .errors import brief


class Accepts:
    """Base class: accepts any value. `misfit` returns (path inside the value, value there, accepted), or None."""

    words = "anything"

    def misfit(self, value: Any) -> tuple[str, Any, str] | None:
        return None if self.matches(value) else ("", value, self.words)

    def matches(self, value: Any) -> bool:
        return True


class Whole(Accepts):
    """An integer from `least` to `most`."""

    def __init__(self, least: int = 0, most: int = 2**62) -> None:
        self.least, self.most = least, most
        self.words = f"a whole number from {least}" + ("" if most == 2**62 else f" to {most}")
        if least == most:
            self.words = str(least)

    def matches(self, value: Any) -> bool:
        return type(value) is int and self.least <= value <= self.most


class Number(Accepts):
    """A number of `least` or more, finite unless `nan`."""

    def __init__(self, least: float | None = None, *, nan: bool = False) -> None:
        self.least, self.nan = least, nan
        self.words = "a number" + ("" if least is None else f" of {least:g} or more")

    def matches(self, value: Any) -> bool:
        if type(value) not in (int, float) or not (self.nan or isfinite(value)):
            return False
        return self.least is None or value >= self.least


class Text(Accepts):
    """A string; one of `names` if any are given."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.words = " or ".join(map(repr, names)) or "a string"

    def matches(self, value: Any) -> bool:
        return isinstance(value, str) and (not self.names or value in self.names)


class Flag(Accepts):
    words = "true or false"

    def matches(self, value: Any) -> bool:
        return isinstance(value, bool)


class Maybe(Accepts):
    """Whatever `inner` accepts, or null."""

    def __init__(self, inner: Accepts) -> None:
        self.inner, self.words = inner, f"{inner.words}, or null"

    def misfit(self, value: Any) -> tuple[str, Any, str] | None:
        misfit = None if value is None else self.inner.misfit(value)
        return None if misfit is None else (misfit[0], misfit[1], self.words if not misfit[0] else misfit[2])


class Each(Accepts):
    """An array whose items `inner` accepts."""

    def __init__(self, inner: Accepts) -> None:
        self.inner, self.words = inner, f"an array, each item {inner.words}"

    def misfit(self, value: Any) -> tuple[str, Any, str] | None:
        if not isinstance(value, list):
            return "", value, self.words
        return next((m for i, x in enumerate(value) if (m := _inside(f"[{i}]", self.inner, x))), None)


class Table(Accepts):
    """An object with any names whose values `inner` accepts."""

    def __init__(self, inner: Accepts) -> None:
        self.inner, self.words = inner, "an object"

    def misfit(self, value: Any) -> tuple[str, Any, str] | None:
        if not isinstance(value, dict):
            return "", value, self.words
        return next((m for name, x in value.items() if (m := _inside(f".{name}", self.inner, x))), None)


class Record(Accepts):
    """An object with `fields`, optional fields `more`, and any others only if `open`."""

    words = "an object"

    def __init__(
        self, fields: Mapping[str, Accepts], more: Mapping[str, Accepts] | None = None, *, open: bool = False
    ) -> None:
        self.fields, self.more, self.open = fields, more or {}, open

    def misfit(self, value: Any) -> tuple[str, Any, str] | None:
        if not isinstance(value, dict):
            return "", value, self.words
        known = {**self.fields, **self.more}
        for name, accepts in known.items():
            if name not in value:
                if name in self.fields:
                    return f".{name}", _MISSING, accepts.words
                continue
            if (misfit := _inside(f".{name}", accepts, value[name])) is not None:
                return misfit
        extra = next((name for name in value if name not in known), None)
        return None if self.open or extra is None else (f".{extra}", value[extra], f"only {', '.join(known)}")


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


def check(value: Any, accepts: Accepts, where: object, way_out: str, *, refuse: type[ValueError] = ValueError) -> Any:
    """Return `value` if it is accepted; otherwise raise `refuse`, naming the first field that is not."""
    misfit = accepts.misfit(value)
    if misfit is None:
        return value
    place, got, words = misfit
    name = place.removeprefix(".") or "its content"
    raise refuse(f"{where}: {name} is {brief(got)}; accepted: {words}; {way_out}")


def _inside(place: str, accepts: Accepts, value: Any) -> tuple[str, Any, str] | None:
    misfit = accepts.misfit(value)
    return None if misfit is None else (place + misfit[0], *misfit[1:])
