"""The outcomes of claims as mark, word and group, and how they are counted: verdicts apart from what was seen here.

tally(claims)     [("verdicts", {...}), ("at this size only", {...}), ("undecided", {...})], each outcome -> count
in_words(claims)  "3 hold, 1 does not hold; at this size only: 2 seen, 1 not seen; 4 not tested"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.verdicts import CLOSE, ERROR, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED

Claims = Sequence[Mapping[str, Any]]


class Outcome(NamedTuple):
    """How an outcome is shown: never by colour alone."""

    mark: str
    colour: str  # of a terminal
    one: str  # "1 holds"
    many: str  # "3 hold"
    meaning: str


SHOWN = {
    HOLDS: Outcome("✓", "green", "holds", "hold", "true by the rule, at the sizes the statement is about"),
    FAILS: Outcome("✗", "red", "does not hold", "do not hold", "false by the rule, with every control passed"),
    CLOSE: Outcome("≈", "yellow", "too close to call", "too close to call", "the interval leaves both answers open"),
    SEEN: Outcome("(✓)", "cyan", "seen", "seen", "true at this size, which is not the paper's"),
    NOT_SEEN: Outcome("(✗)", "magenta", "not seen", "not seen", "false at this size, which is not the paper's"),
    UNTESTED: Outcome("–", "dim", "not tested", "not tested", "a control failed, or rows are missing: nothing decided"),
    ERROR: Outcome("!", "bold red", "error", "errors", "the work failed, so there is no outcome"),
}
VERDICTS, HERE_ONLY, UNDECIDED = "verdicts", "at this size only", "undecided"
GROUPS = {VERDICTS: (HOLDS, FAILS, CLOSE), HERE_ONLY: (SEEN, NOT_SEEN), UNDECIDED: (UNTESTED, ERROR)}
AGREEMENTS = {"agrees": "agree", "differs": "differ", "adds nothing": "add nothing", "not run": "not run"}


def slug(words: str) -> str:
    """Return an outcome or agreement as the name of a CSS class."""
    return words.replace(" ", "-")


def tally(claims: Claims) -> list[tuple[str, dict[str, int]]]:
    """Return the outcomes that occur, group by group."""
    outcomes = [claim["outcome"] for claim in claims]
    return [(group, _counted(outcomes, members)) for group, members in GROUPS.items() if set(outcomes) & set(members)]


def in_words(claims: Claims) -> str:
    """Return the counts in words; what was seen outside a regime is never added to the verdicts."""
    parts = []
    for group, counts in tally(claims):
        words = ", ".join(f"{n} {SHOWN[o].one if n == 1 else SHOWN[o].many}" for o, n in counts.items())
        parts.append(f"{HERE_ONLY}: {words}" if group == HERE_ONLY else words)
    return "; ".join(parts)


def agreements(claims: Claims) -> str:
    """Return how this machine compares with the committed evidence: "12 agree, 1 differs, 3 not run"; "" without."""
    words = [claim["agreement"]["word"] for claim in claims if claim.get("agreement")]
    counts = _counted(words, AGREEMENTS)
    return ", ".join(f"{n} {word if n == 1 else AGREEMENTS[word]}" for word, n in counts.items())


def _counted(values: Sequence[str], members: Iterable[str]) -> dict[str, int]:
    return {member: values.count(member) for member in members if member in values}
