"""One clear sentence for bad input: the value received, what is accepted, the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class StateError(ValueError):
    """A state, or a state file, that does not belong to this call."""


class BackendError(ValueError):
    """The back end asked for cannot run this call; the sentence says why."""


class FileWarning(UserWarning):
    """A file of an older format that is read, and should be written again."""


def unknown(what: str, name: object, accepted: Iterable[str]) -> ValueError:
    """ValueError for a name that is not in `accepted`, with the nearest one suggested."""
    names = list(accepted)
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return ValueError(f"unknown {what} {name!r}{hint} Accepted: {', '.join(names)}")


def brief(value: object, most: int = 80) -> str:
    """A value in an error, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
