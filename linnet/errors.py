"""Exceptions and argument checks: one sentence with the value received, what is accepted and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from math import isfinite
from typing import NamedTuple, TypeGuard


class ArgumentError(ValueError):
    """An argument whose value is not accepted, kept as fields.

    `str()` gives the library's sentence; the command line names the option instead (cli/main.py), and `as_dict` serves
    programs. `hint` is the way out, or what the argument means; it may be empty.
    """

    def __init__(self, name: str, value: object, accepted: str, hint: str = "") -> None:
        super().__init__(name, value, accepted, hint)  # all in `args`, so that the error can be pickled
        self.name, self.value, self.accepted, self.hint = name, value, accepted, hint

    def __str__(self) -> str:
        return self.sentence(self.name)

    def sentence(self, name: str) -> str:
        """Return the sentence with the argument under another name, such as the option of a command."""
        return f"{name} is {self.value!r}; accepted: {self.accepted}" + (f"; {self.hint}" if self.hint else "")

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return the fields as JSON values; a value that JSON cannot hold is given as its `repr`."""
        return {"name": self.name, "value": _plain(self.value), "accepted": self.accepted, "hint": self.hint}


class Option(NamedTuple):
    """An argument that would lift a refusal: `name=value`, in order to `purpose`."""

    name: str
    value: str | bool
    purpose: str


class OptionError(ValueError):
    """A refusal that other options of the same call would lift, kept as fields; `otherwise` is another way out."""

    def __init__(self, problem: str, *options: Option, otherwise: str = "") -> None:
        super().__init__(problem, *options)
        self.problem, self.options, self.otherwise = problem, options, otherwise

    def __str__(self) -> str:
        return self.sentence(lambda name, value: f"{name}={value!r}")

    def sentence(self, write: Callable[[str, str | bool], str]) -> str:
        """Return the sentence with the options formatted by `write`: as keyword arguments of Python, or as flags."""
        ways = ", ".join(f"{write(name, value)} to {purpose}" for name, value, purpose in self.options)
        ways = f"pass {ways}" if ways else ""
        return "; ".join(filter(None, (self.problem, ", or ".join(filter(None, (ways, self.otherwise))))))


class StateError(ValueError):
    """A state or state file that does not match this call."""


class BackendError(ValueError):
    """The requested backend cannot run this call; the message says why."""


class FileWarning(UserWarning):
    """A file in an older format was read; it should be written again."""


def unknown(what: str, name: object, accepted: Iterable[str]) -> ValueError:
    """Return the ValueError for a name that is not in `accepted`, suggesting the closest match."""
    names = list(accepted)
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return ValueError(f"unknown {what} {name!r}{hint} Accepted: {', '.join(names)}")


def whole(name: str, value: object, least: int, most: int | None = None, hint: str = "") -> int:
    """Return `value` if it is an integer from `least` to `most`, and not a bool; else raise an ArgumentError."""
    if is_whole(value, least, most):
        return value
    bounds = f", {_bound(least)} or more" if most is None else f" from {_bound(least)} to {_bound(most)}"
    raise ArgumentError(name, value, f"a whole number{bounds}", hint)


def is_whole(value: object, least: int, most: int | None = None) -> TypeGuard[int]:
    """Return True for an integer within the bounds; a bool does not count, although Python makes it an int."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most)


def number(
    name: str,
    value: object,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> float:
    """Return `value` if it is a finite number within the bounds, and not a bool; else raise an ArgumentError.

    `least` and `most` are themselves accepted, `above` and `below` are not.
    """
    if (
        is_number(value)
        and (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
    ):
        return value
    raise ArgumentError(name, value, _range(least, most, above, below), hint)


def is_number(value: object) -> TypeGuard[float]:
    """Return True for an int or a finite float; a bool does not count."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def brief(value: object, most: int = 80) -> str:
    """Return the `repr` of a value for an error message, truncated to `most` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _range(least: float | None, most: float | None, above: float | None, below: float | None) -> str:
    if least is not None and most is not None:
        return f"a number from {least:g} to {most:g}"
    if above is not None and below is not None:
        return f"a number between {above:g} and {below:g}"
    words = ((least, "of {:g} or more"), (above, "above {:g}"), (most, "up to {:g}"), (below, "below {:g}"))
    limits = [text.format(bound) for bound, text in words if bound is not None]
    return f"a number {', '.join(limits)}" if limits else "a finite number"


def _bound(number: int) -> str:
    """Return a bound in a readable form: 2**64 - 1 instead of its twenty digits."""
    sign, size = "-" if number < 0 else "", abs(number)
    for rest, words in ((0, ""), (1, " - 1")):
        if size >= 2**32 and (size + rest).bit_count() == 1:
            return f"{sign}2**{(size + rest).bit_length() - 1}{words}"
    return str(number)


def _plain(value: object) -> str | int | float | None:
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return repr(value)
