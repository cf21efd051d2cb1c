"""What a document says of a claim that was judged: outcome, answer, scope, and what they rest on.

Every page, table and terminal takes these fields from here, so that a claim has one outcome everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .claim import Claim, Finding
from .licence import Licensed, licence
from .plan import reason
from .verdicts import CLOSE, ERROR, UNTESTED


def allowed(result: Finding, failed: bool, no_time: Mapping[str, float] | None = None) -> Licensed:
    """Return the outcome that may be printed; an error where work failed, untested where a run had no time for it."""
    if failed:
        return Licensed(ERROR, "", "work failed")
    return licence(result.evidence) if no_time is None else Licensed(UNTESTED, reason(no_time), "no time left")


def judged(claim: Claim, result: Finding, licensed: Licensed) -> dict[str, Any]:
    """Return outcome, answer, scope and what they rest on."""
    evidence = result.evidence
    decided = licensed.outcome not in (UNTESTED, ERROR)
    content: dict[str, Any] = {"outcome": licensed.outcome, "reason": licensed.reason}
    content |= {"answer": answer(claim, result, licensed)}
    content |= {"sentence": result.sentence, "scope": result.scope, "meaning": result.meaning if decided else ""}
    content |= {"regime": asdict(evidence.regime), "controls": [asdict(control) for control in evidence.controls]}
    return content | {"repeats": evidence.repeats, "of": evidence.of}


def answer(claim: Claim, result: Finding, allowed: Licensed) -> str:
    """Return the answer in at most eight words."""
    if allowed.outcome == CLOSE:
        return "The interval does not decide"
    if allowed.outcome in (UNTESTED, ERROR):
        return f"Not tested: {allowed.short}" if allowed.outcome == UNTESTED else "The work failed"
    return claim.answers[result.evidence.state]
