"""A recall study: a claim whose units are recall runs; `linnet reproduce` and `linnet recall study` run the same ones.

    CLAIM = recall_claim(name="length", number="C2", ..., configs=configs, verdict=verdict, ...)     one file each, in
                                                                                     linnet/labs/claims/rebased

Budgets are those of every claim, and two more that only `linnet recall study` takes:

    smoke   seconds, to check that it runs         long    minutes: the tables of docs/science/recall.md
    quick   under a minute on 2 cores              day     more seeds, rates and lengths; about a day for all studies
    hour    its share of an hour for all claims    paper   the published sizes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ..core.claim import BUDGETS as EVERY_CLAIM
from ..core.claim import Chart, Claim, Finding, Heat, Number, Setting, Unit, untested
from ..core.results import Row
from ..core.verdicts import UNTESTED, Table, Verdict
from .config import RecallConfig
from .run import rows_of
from .work import SLOW, cost

BUDGETS = (*EVERY_CLAIM[:-1], "long", "day", EVERY_CLAIM[-1])
SMALL = RecallConfig(seq_len=16, pairs=4, vocab_size=32, d_model=32, batch_size=32, steps=250, beta2=0.95)
LONGER, SEEDS = 2, 5  # of `enlarged`: factor on the steps, number of seeds
PER_STEP, PER_COST = 1.5e-3, 1.3e-6  # seconds of one core
Configs = Callable[[str], Sequence[RecallConfig]]
Maps = list[dict[str, Any]]


def no_maps(rows: Sequence[Row]) -> Maps:
    return []


@dataclass(frozen=True)
class RecallClaim(Claim):
    """A claim that `linnet recall study` can run; `maps` are attention maps for the page of that command."""

    maps: Callable[[Sequence[Row]], Maps] = no_maps


@dataclass(frozen=True)
class Reading:
    """Turns rows into a finding; `meaning` maps each outcome to its meaning for someone choosing a model."""

    verdict: Callable[[Sequence[Row]], Verdict]
    numbers: Callable[[Sequence[Row]], list[Number]]  # called only when the rule has the rows it needs
    tables: Callable[[Sequence[Row]], list[Table]]
    charts: Callable[[Sequence[Row]], list[Chart | Heat]]
    meaning: Mapping[str, str]

    def __call__(self, rows: Sequence[Row]) -> Finding:
        if not rows:
            return untested("a quick run is too short for most of its models to learn anything: take --budget hour")
        result = self.verdict(rows)
        if result.outcome == UNTESTED:
            numbers = []
            meaning = "Nothing can be read from this run; a larger budget has the rows that the rule wants."
        else:
            numbers, meaning = self.numbers(rows), self.meaning[result.outcome]
        return Finding(result.outcome, result.sentence, numbers, meaning, self.tables(rows), self.charts(rows))


def recall_claim(
    *,
    configs: Configs,
    verdict: Callable[[Sequence[Row]], Verdict],
    numbers: Callable[[Sequence[Row]], list[Number]],
    tables: Callable[[Sequence[Row]], list[Table]],
    charts: Callable[[Sequence[Row]], list[Chart | Heat]],
    meaning: Mapping[str, str],
    **about: Any,
) -> RecallClaim:
    """Return the claim of a study. about: name, number, question, statement, rule and maps of the claim."""
    reading = Reading(verdict, numbers, tables, charts, meaning)
    return RecallClaim(paper="rebased", units=partial(units, configs), read=reading, **about)


def units(configs: Configs, setting: Setting) -> list[Unit]:
    return list(_units(configs, setting.budget))


@cache
def _units(configs: Configs, budget: str) -> tuple[Unit, ...]:
    """Return one unit per run; cached, because sizing the states takes a search."""
    return tuple(Unit(rows_of, config, (config.to_dict(),), seconds(config)) for config in configs(budget))


def enlarged(quick: Sequence[RecallConfig]) -> list[RecallConfig]:
    """Return the hour runs of a study that defines none: the quick ones with more steps and seeds."""
    first = [config for config in quick if config.seed == 0]
    return [config.replace(steps=LONGER * config.steps, seed=seed) for config in first for seed in range(SEEDS)]


def seconds(config: RecallConfig) -> float:
    """Estimate the time of a run: a cost per step and a cost per token."""
    return round(0.3 + PER_STEP * config.steps * SLOW.get(config.mixer, 1.0) + PER_COST * cost(config.to_dict()), 1)
