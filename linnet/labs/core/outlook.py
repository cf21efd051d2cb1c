"""What a day run has, what it still lacks, and what that would cost in core-hours at the speeds measured so far.

    outlook(claims, setting, known)      a line for every stage of every claim, in the order in which work is taken

A row that two claims share counts for the first of them. Speeds are those of the finished rows of the same mixer, and
of all finished rows where it has none; before the first row they are the estimates of the units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .claim import Claim, Setting, Unit
from .pace import Seconds
from .queue import next_stage
from .results import Row, core_seconds, key

WEIGHT = 100.0  # expected seconds of finished work that weigh as much as what is known of all work
HOUR = 3600.0


class Line(NamedTuple):
    """A stage of a claim: rows that exist of those it needs, and core-hours spent on them and expected for the rest."""

    claim: str
    number: str
    stage: int  # from 1
    rows: int
    wanted: int
    spent: float
    left: float


def outlook(claims: Sequence[Claim], setting: Setting, known: Mapping[str, Row]) -> list[Line]:
    """Return a line for every stage; claims whose next stage is cheapest come first, as in the queue."""
    work = {claim.name: claim.work(setting) for claim in claims}
    speed = Speed([unit for units in work.values() for unit in units], known)
    counted: set[str] = set()
    lines = []
    for claim in sorted(claims, key=lambda one: to_next_stage(work[one.name], known)):
        for stage in sorted({unit.stage for unit in work[claim.name]}):
            units = [unit for unit in work[claim.name] if unit.stage == stage and name_of(unit) not in counted]
            counted |= {name_of(unit) for unit in units}
            done = [known[name_of(unit)] for unit in units if name_of(unit) in known]
            left = sum(speed.seconds(unit) for unit in units if name_of(unit) not in known)
            spent = sum(map(core_seconds, done))
            sizes = (len(done), len(units), round(spent / HOUR, 3), round(left / HOUR, 3))
            lines.append(Line(claim.name, claim.number, stage + 1, *sizes))
    return lines


def to_next_stage(units: Sequence[Unit], known: Mapping[str, Row]) -> float:
    """Return the seconds to the end of the first open stage; nothing where all are complete."""
    open_units = tuple(unit for unit in units if name_of(unit) not in known)
    return next_stage(open_units) if open_units else 0.0


class Speed:
    """Measured over expected seconds, for each mixer as far as it is known."""

    def __init__(self, units: Sequence[Unit], known: Mapping[str, Row]) -> None:
        self.every, self.of = Seconds(), dict[Any, Seconds]()
        for unit in {name_of(one): one for one in units}.values():
            row = known.get(name_of(unit))
            if row is not None:
                spent = core_seconds(row), unit.seconds
                self.every = self.every.added(*spent)
                self.of[kind(unit)] = self.of.get(kind(unit), Seconds()).added(*spent)

    def seconds(self, unit: Unit) -> float:
        """Return the seconds of one core expected of a unit."""
        overall = self.every.pace(1.0, WEIGHT)
        return unit.seconds * self.of.get(kind(unit), Seconds()).pace(overall, WEIGHT)


def kind(unit: Unit) -> tuple[Any, Any]:
    """Return what units of one speed have in common."""
    return unit.configs[0].get("experiment"), unit.configs[0].get("mixer")


def name_of(unit: Unit) -> str:
    """Return the key of the one row that a unit of a day run has."""
    return key(unit.configs[0])


def totals(lines: Sequence[Line]) -> Line:
    """Return the sum of all lines."""
    sums = [sum(getattr(line, name) for line in lines) for name in ("rows", "wanted", "spent", "left")]
    return Line("all", "", 0, int(sums[0]), int(sums[1]), sums[2], sums[3])
