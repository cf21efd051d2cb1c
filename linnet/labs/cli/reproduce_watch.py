"""Progress of `linnet reproduce` on stderr: the statement being tested, the time left, and each outcome when reached.

Before the first row the estimate is the sum of the units' expected seconds; after it, the expected seconds left are
scaled by the pace so far. With a limit of time, no more than it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ...cli.common import duration
from ..core.claim import DAY, Claim, Setting, Unit, complete
from ..core.results import Row, key
from .rows_watcher import RowsWatcher

if TYPE_CHECKING:
    from ..core.plan import Limit

WIDTH = 60  # characters of a statement


class ClaimsWatcher(RowsWatcher):
    """Print `claim_line(claim, rows by key, setting)` when the last row of a claim is complete."""

    def __init__(
        self,
        console: Console,
        claims: Sequence[Claim],
        setting: Setting,
        workers: int,
        claim_line: Callable[[Claim, Mapping[str, Row], Setting], str],
        limit: Limit | None = None,
    ) -> None:
        super().__init__(console, "reproduce", self._seconds, self._named)
        self.limit, self.line_at_end = limit, limit is None  # with a limit, more work may follow
        self.workers, self.claim_line = workers, claim_line
        self.claims = {claim.name: claim for claim in claims}
        self.costs: dict[str, float] = {}
        self.known: dict[str, Row] = {}
        self.setting = replace(setting, row=lambda config: self.known.get(key(config)))
        self.keys: dict[str, set[str]] = {}
        self.judged: dict[str, int] = {}  # rows of the last line of each claim
        self._renew()

    def _renew(self) -> None:
        """Read the work of all claims; that of a day run follows from the rows."""
        for name, claim in self.claims.items():
            work = claim.work(self.setting)
            self._price(work)
            self.keys[name] = {key(config) for unit in work for config in unit.configs}

    def _price(self, units: Sequence[Unit]) -> None:
        for unit in units:
            each = unit.seconds / len(unit.configs) / (1 if unit.alone else self.workers)
            self.costs |= {key(config): each for config in unit.configs}

    def begin(self, units: Sequence[Unit], rows: Sequence[Row]) -> None:
        """Announce the work to do, and at the first call the rows that exist; later calls add work."""
        first = self.task is None
        self.known |= {key(row["config"]): row for row in rows}
        self._price(units)
        configs = [config for unit in units for config in unit.configs if key(config) not in self.known]
        if first:
            self._say(self._outlook(configs))
        self.start(configs)

    def remark(self, text: str) -> None:
        self._say(text)

    def _outlook(self, configs: Sequence[Mapping[str, Any]]) -> str:
        """Return what is to be done, in one line."""
        kept = len(set().union(*self.keys.values()) & self.known.keys())
        about = f"; {kept:,} rows exist already" if kept else ""
        guess = duration(sum(self.costs[key(config)] for config in configs))
        work = f"{len(configs):,} rows to compute, about {guess}"
        if self.limit is not None:
            work = f"in at most {self.limit.total / 60:g} minutes"
        return f"{len(self.claims)} claims, {work}{about}"

    def row(self, row: Row) -> None:
        row_key = key(row["config"])
        self.known[row_key] = row
        if self.setting.budget == DAY:
            self._renew()
        of = [name for name, keys in self.keys.items() if row_key in keys]
        self.bar.update(self.task, description=self._claim(of[0]) if of else "reproduce")
        super().row(row)
        for name in of:
            done = len(complete(self.claims[name].work(self.setting), self.known) or ())
            if done > self.judged.get(name, 0):
                self.judged[name] = done
                self._say(self.claim_line(self.claims[name], self.known, self.setting))

    def _claim(self, name: str) -> str:
        """Return the progress of a claim, and its time left at the pace so far."""
        left = self.keys[name] - self.known.keys()
        pace = (monotonic() - self.began) / self.done if self.done else 1.0
        seconds = pace * sum(self.costs.get(one, 0.0) for one in left)
        return (
            f"{brief(self.claims[name])} {len(self.keys[name]) - len(left)}/{len(self.keys[name])}, {duration(seconds)}"
        )

    def left(self) -> str:
        """Return the time left for all work, never more than the limit."""
        seconds = self.seconds_left()
        return duration(seconds if self.limit is None else max(0.0, min(seconds, self.limit.left())))

    def _seconds(self, config: Mapping[str, Any]) -> float:
        return self.costs.get(key(config), 0.0)

    def _named(self, row: Row) -> str:
        names = [name for name, keys in self.keys.items() if key(row["config"]) in keys]
        return self._claim(names[0]) if names else "a row"


def brief(claim: Claim) -> str:
    """Return the statement of a claim, cut at a word."""
    return shorten(claim.statement, WIDTH, placeholder=" ...")
