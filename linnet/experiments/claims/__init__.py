"""The claims of three papers, and the questions they leave open, in the order the report tells them.

A claim is one object (claim.py) in one file; `linnet reproduce` runs them (run.py) and the report is made from their
rows (document.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import unknown
from .claim import BUDGETS, PAPERS, Claim


def claims() -> dict[str, Claim]:
    """By name. Imported on first use: the list is long, and `--help` does without."""
    from . import beyond, icl, rebased, rnn

    found = [*rnn.CLAIMS, *rebased.CLAIMS, *icl.CLAIMS, *beyond.CLAIMS]
    named = {claim.name: claim for claim in found}
    assert len(named) == len(found), "two claims have one name"
    return named


def chosen(names: Sequence[str]) -> list[Claim]:
    """Claims of papers, of "all", or by their own names or numbers, each once, in the order of the report."""
    every = claims()
    wanted: set[str] = set()
    for name in names:
        of = {one.name for one in every.values() if name in ("all", one.paper, one.name, one.number)}
        if not of:
            raise unknown("claim", name, ["all", *PAPERS, *every])
        wanted |= of
    return [claim for claim in every.values() if claim.name in wanted]


def check_budget(budget: str) -> None:
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)


__all__ = ["BUDGETS", "PAPERS", "Claim", "check_budget", "chosen", "claims"]
