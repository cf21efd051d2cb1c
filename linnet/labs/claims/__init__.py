"""The claims of three papers and the questions they leave open: one file each, collected by listing these folders.

A module with a `CLAIM` (linnet/labs/core/claim.py) is a claim; to add one, add a file. `linnet reproduce` runs them
(core/reproduce.py), and document.py builds the report from their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import walk_packages

from ...errors import ArgumentError, unknown
from ..core.claim import BUDGETS, DAY, PAPERS, Claim

RENAMED: dict[str, str] = {}  # a name that claims had once -> the name of today


def claims() -> dict[str, Claim]:
    """Return every claim by name, in the order of the scoreboard. This imports them all, which `--help` avoids."""
    modules = [import_module(info.name) for info in walk_packages(__path__, f"{__name__}.")]
    ranked = sorted((module.CLAIM for module in modules if hasattr(module, "CLAIM")), key=Claim.rank)
    named = {claim.name: claim for claim in ranked}
    assert len(named) == len(ranked), "two claims have one name"
    return named


def chosen(names: Sequence[str], every: Mapping[str, Claim] | None = None, budget: str = "") -> list[Claim]:
    """Return the claims of papers, of "all", or by name or number, each once, in the order of the scoreboard.

    Numbers are accepted in upper and lower case. every: all claims by name. budget: of "day" only the claims that have
    a day run; one without it that is asked for by its name is refused.
    """
    every = claims() if every is None else every
    wanted: set[str] = set()
    for name in names:
        of = {
            one.name
            for one in every.values()
            if name in ("all", one.paper, one.name) or (one.number and name.upper() == one.number.upper())
        }
        if not of and name in RENAMED:
            raise ValueError(f"the claim {name!r} is now called {RENAMED[name]!r}: linnet reproduce {RENAMED[name]}")
        if not of:
            raise unknown("claim", name, ["all", *PAPERS, *every])
        if budget == DAY:
            of = {one for one in of if every[one].day}
        if not of:
            have = ", ".join(one.name for one in every.values() if one.day)
            raise ArgumentError("claim", name, f"with --budget {DAY} one of {have}", "the others have --budget hour")
        wanted |= of
    return [claim for claim in every.values() if claim.name in wanted]


def check_budget(budget: str) -> None:
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)


__all__ = ["BUDGETS", "PAPERS", "Claim", "check_budget", "chosen", "claims"]
