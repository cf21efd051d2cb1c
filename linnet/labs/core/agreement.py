"""What a run on this machine adds to the committed evidence: agrees, differs (and why), adds nothing, not run.

    agreement(claim, committed)      claim of a document, record of evidence.py -> {"word", "reason"}

Outcomes agree when they point the same way: what "holds" at the paper's sizes is "seen here" at small ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .licence import QUIET
from .verdicts import CLOSE, ERROR, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED

AGREES, DIFFERS, NOTHING, NOT_RUN = "agrees", "differs", "adds nothing", "not run"
DIRECTION = {HOLDS: 1, SEEN: 1, FAILS: -1, NOT_SEEN: -1, CLOSE: 0}
REPEATS = re.compile(r"(,\s*)?[\d,]+ (seeds|rounds|repeats)\b")


def agreement(claim: Mapping[str, Any], committed: Mapping[str, Any]) -> dict[str, str]:
    """Compare a claim of this run with its committed record."""
    outcome, before = claim["outcome"], committed["outcome"]
    if outcome == ERROR:
        return compared(NOTHING, f"the work failed: {'; '.join(claim['errors'])}")
    if claim["missing"]:
        return compared(NOT_RUN, claim["reason"] or claim["sentence"])
    if outcome == UNTESTED:
        return compared(NOTHING, claim["reason"] or claim["sentence"])
    if before not in DIRECTION:
        return compared(
            DIFFERS, f"the committed run did not decide it ({committed['answer']}); {reason(claim, committed)}"
        )
    if DIRECTION[outcome] == DIRECTION[before]:
        return compared(AGREES, "at this size" if outcome in (SEEN, NOT_SEEN) and before in (HOLDS, FAILS) else "")
    return compared(DIFFERS, reason(claim, committed))


def shown(committed: Mapping[str, Any]) -> dict[str, str]:
    """Return what a document shows of a committed record."""
    number = committed["number"] or {"shown": "", "spread": ""}
    content = {name: committed[name] for name in ("outcome", "answer", "scope")}
    return content | {name: number[name] for name in ("shown", "spread")}


def reason(claim: Mapping[str, Any], committed: Mapping[str, Any]) -> str:
    """Return why two outcomes may differ: their size, their data, noise, or else the machine."""
    ours, theirs = sizes(claim["regime"]["here"], claim["scope"]), sizes(committed["sizes"], committed["scope"])
    if ours != theirs:
        return f"size: {ours or 'not stated'} here, {theirs or 'not stated'} in the committed run"
    if sorted(claim["data"]) != sorted(committed["data"]):
        return f"data: {listed(claim['data'])} here, {listed(committed['data'])} in the committed run"
    noisy = [one["detail"] for one in claim["controls"] if one["name"] == QUIET and not one["passed"]]
    if noisy:
        return f"noise: {noisy[0]}"
    if overlap(next(iter(claim["numbers"]), None), committed["number"]):
        return "noise: the intervals overlap"
    return "another machine"


def sizes(here: str, scope: str) -> str:
    """Return the sizes of a run in words, without its number of repeats."""
    return REPEATS.sub("", here or scope).strip(" ,;")


def listed(data: list[str]) -> str:
    return ", ".join(sorted(data)) or "the shipped data"


def overlap(ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> bool:
    """Return whether the intervals of the same number have a point in common."""
    if ours is None or theirs is None or ours["what"] != theirs["what"]:
        return False
    bounds = [number[name] for number in (ours, theirs) for name in ("low", "high")]
    if any(bound is None for bound in bounds):
        return False
    low, high, other_low, other_high = bounds
    return bool(low <= other_high and other_low <= high)


def compared(word: str, reason: str) -> dict[str, str]:
    return {"word": word, "reason": reason}
