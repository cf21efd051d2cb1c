"""Progress of `linnet reproduce` on stderr: time left for the current claim and for all, and each verdict when reached.

Before the first row the estimate is the sum of the units' expected seconds; after it, the expected seconds left are
scaled by the pace so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from rich.console import Console

from ...cli.common import duration
from ..core.claim import Claim, Setting, Unit
from ..core.results import Row, key
from .rows_watcher import RowsWatcher


class ClaimsWatcher(RowsWatcher):
    """Print `claim_line(claim, rows by key, setting)` when the last row of a claim is complete."""

    def __init__(
        self,
        console: Console,
        claims: Sequence[Claim],
        setting: Setting,
        workers: int,
        claim_line: Callable[[Claim, Mapping[str, Row], Setting], str],
    ) -> None:
        super().__init__(console, "reproduce", self._seconds, self._named)
        self.workers, self.claim_line, self.setting = workers, claim_line, setting
        self.claims = {claim.name: claim for claim in claims}
        self.keys = {name: set(claim.keys(setting)) for name, claim in self.claims.items()}
        self.costs: dict[str, float] = {}
        self.known: dict[str, Row] = {}

    def begin(self, units: Sequence[Unit], rows: Sequence[Row]) -> None:
        """Announce the work to do and the rows that exist."""
        self.known = {key(row["config"]): row for row in rows}
        for unit in units:
            each = unit.seconds / len(unit.configs) / (1 if unit.alone else self.workers)
            self.costs |= {key(config): each for config in unit.configs}
        configs = [config for unit in units for config in unit.configs if key(config) not in self.known]
        kept = len(set().union(*self.keys.values()) & self.known.keys())
        guess = sum(self.costs[key(config)] for config in configs)
        about = f"; {kept:,} rows exist already" if kept else ""
        self._say(f"{len(self.claims)} claims, {len(configs):,} rows to compute, about {duration(guess)}{about}")
        self.start(configs)

    def row(self, row: Row) -> None:
        row_key = key(row["config"])
        self.known[row_key] = row
        of = [name for name, keys in self.keys.items() if row_key in keys]
        self.bar.update(self.task, description=self._claim(of[0]) if of else "reproduce")
        super().row(row)
        for name in of:
            if self.keys[name] <= self.known.keys():
                self._say(self.claim_line(self.claims[name], self.known, self.setting))

    def _claim(self, name: str) -> str:
        """Return the progress of a claim, and its time left at the pace so far."""
        left = self.keys[name] - self.known.keys()
        pace = (monotonic() - self.began) / self.done if self.done else 1.0
        seconds = pace * sum(self.costs.get(one, 0.0) for one in left)
        return f"{name} {len(self.keys[name]) - len(left)}/{len(self.keys[name])}, {duration(seconds)}"

    def _seconds(self, config: Mapping[str, Any]) -> float:
        return self.costs.get(key(config), 0.0)

    def _named(self, row: Row) -> str:
        names = [name for name, keys in self.keys.items() if key(row["config"]) in keys]
        return self._claim(names[0]) if names else "a row"
