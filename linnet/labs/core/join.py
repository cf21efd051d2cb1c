"""Join the rows of another folder to a day run: those whose configuration is one that this run needs, and no others.

    joined = join(out, other, run, claims)       rows taken, rows that were here already, and why others were left out

The configuration is the whole experiment, so that a row of another machine, commit or version answers the same question
wherever it is equal. Rates that were searched decide what is needed next, hence the rounds. Pages count foreign rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import StateError
from .claim import Claim, Setting
from .folder import Run
from .results import ROWS, Store, key, read_rows, row_name


class Joined(NamedTuple):
    """Numbers of rows taken and known before, and the names of those that are not part of this run."""

    taken: int
    known: int
    foreign: list[str]


def join(out: Path, other: Path, run: Run, claims: Sequence[Claim]) -> Joined:
    """Append the rows of `other` that this run needs to those of `out`."""
    if not (other / ROWS).is_file():
        raise StateError(
            f"{other} has no {ROWS}; accepted: the --out folder of `linnet reproduce --budget {run.budget}`"
        )
    rows = read_rows(other / ROWS)
    with Store(out / ROWS) as store:
        setting = run.setting(out, row=store.get)
        fresh = {key(row["config"]): row for row in rows if not store.has(row["config"])}
        known, taken = len(rows) - len(fresh), 0
        while wanted := [one for claim in claims for one in ready_keys(claim, setting) if one in fresh]:
            for one in dict.fromkeys(wanted):
                store.append(fresh.pop(one))
                taken += 1
    return Joined(taken, known, [row_name(row["config"]) for row in fresh.values()])


def ready_keys(claim: Claim, setting: Setting) -> list[str]:
    """Return the keys of the rows whose configuration is settled."""
    return [key(config) for unit in claim.work(setting) if not unit.waits for config in unit.configs]
