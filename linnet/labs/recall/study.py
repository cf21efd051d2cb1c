"""A recall study: a claim whose units are recall runs; `linnet reproduce` and `linnet recall study` run the same ones.

    CLAIM = recall_claim(name="length", number="C2", ..., configs=configs, verdict=verdict, ...)     one file each, in
                                                                                     linnet/labs/claims/rebased

Budgets are those of every claim, and one more that only `linnet recall study` takes:

    smoke   seconds, to check that it runs         long    minutes: the larger tables of docs/science/recall.md
    quick   under a minute on 2 cores              day     the papers' sizes in stages, until converged (day.py)
    hour    its share of an hour for all claims    paper   the published runs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from ..core.claim import BUDGETS as EVERY_CLAIM
from ..core.claim import DAY, Chart, Claim, Evidence, Finding, Heat, Number, Setting, Unit, untested
from ..core.intervals import Interval
from ..core.licence import EVERYWHERE, Control, Regime
from ..core.results import Row
from ..core.verdicts import NO, OPEN, UNTESTED, YES, Table, Verdict
from .bench import Bench, regime_of, scope_of
from .config import RecallConfig
from .day import Stage, day_units
from .run import rows_of
from .sweep import SEARCH_SEED
from .work import SLOW, cost

BUDGETS = (*EVERY_CLAIM[:-2], "long", *EVERY_CLAIM[-2:])
SMALL = RecallConfig(seq_len=16, pairs=4, vocab_size=32, d_model=32, batch_size=32, steps=250, beta2=0.95)
LONGER, SEEDS = 2, 5  # of `enlarged`: factor on the steps, number of seeds
PER_STEP, PER_COST = 1.5e-3, 1.3e-6  # seconds of one core
Configs = Callable[[str], Sequence[RecallConfig]]
Maps = list[dict[str, Any]]
Place = TypeVar("Place")


def no_maps(rows: Sequence[Row]) -> Maps:
    return []


@dataclass(frozen=True)
class RecallClaim(Claim):
    """A claim that `linnet recall study` can run; `maps` are attention maps for the page of that command."""

    maps: Callable[[Sequence[Row]], Maps] = no_maps


@dataclass(frozen=True)
class Judged(Verdict):
    """A verdict with what licenses it (core/licence.py): the regime of its rows, its controls, its seeds."""

    regime: Regime = EVERYWHERE
    controls: Sequence[Control] = ()
    repeats: int | None = None
    scope: str = ""


def judged(
    state: str, sentence: str, rows: Sequence[Row], bench: Bench, seeds: int, controls: Sequence[Control]
) -> Judged:
    """Return the verdict of a rule, with the regime and the scope of its rows."""
    return Judged(state, sentence, regime_of(rows, bench), controls, seeds, scope_of(rows, seeds))


def everywhere(states: Sequence[str]) -> str:
    """Return YES or NO where every part of a rule agrees, else OPEN."""
    return states[0] if states and len(set(states)) == 1 and states[0] in (YES, NO) else OPEN


def deciding(state: str, gaps: Mapping[Place, Interval], *, one_refutes: bool = False) -> Place:
    """Return where the gap lies on which the outcome rests, which a scoreboard shows.

    That is the smallest of a yes, and of a no the largest, or the smallest where one place is enough to refute.
    """
    if state != NO:
        return min(gaps, key=lambda place: gaps[place].low)
    return (min if one_refutes else max)(gaps, key=lambda place: gaps[place].high)


@dataclass(frozen=True)
class Reading:
    """Turns rows into a finding; `meaning` maps what the rule found to advice for someone choosing a model."""

    verdict: Callable[[Sequence[Row]], Verdict]
    numbers: Callable[[Sequence[Row]], list[Number]]  # called only when the rule has the rows it needs
    tables: Callable[[Sequence[Row]], list[Table]]
    charts: Callable[[Sequence[Row]], list[Chart | Heat]]
    meaning: Mapping[str, str]

    def __call__(self, rows: Sequence[Row]) -> Finding:
        rows = [row for row in rows if row["config"]["seed"] < SEARCH_SEED]  # without those that chose a rate
        if not rows:
            return untested("a quick run is too short for most of its models to learn anything: take --budget hour")
        result = self.verdict(rows)
        tables, charts = self.tables(rows), self.charts(rows)
        if not isinstance(result, Judged):
            return Finding(Evidence(UNTESTED), result.sentence, tables=tables, charts=charts)
        evidence = Evidence(result.state, result.regime, result.controls, result.repeats)
        meaning = self.meaning[result.state]
        return Finding(evidence, result.sentence, self.numbers(rows), result.scope, meaning, tables, charts)


def recall_claim(
    *,
    configs: Configs,
    verdict: Callable[[Sequence[Row]], Verdict],
    numbers: Callable[[Sequence[Row]], list[Number]],
    tables: Callable[[Sequence[Row]], list[Table]],
    charts: Callable[[Sequence[Row]], list[Chart | Heat]],
    meaning: Mapping[str, str],
    stages: Callable[[], Sequence[Stage]] | None = None,
    **about: Any,
) -> RecallClaim:
    """Return the claim of a study. about: name, number, statement, source, rule, answers, change and maps.

    stages: those of its day run, if it has one.
    """
    reading = Reading(verdict, numbers, tables, charts, meaning)
    work = partial(units, configs, stages)
    return RecallClaim(paper="rebased", units=work, read=reading, day=stages is not None, **about)


def units(configs: Configs, stages: Callable[[], Sequence[Stage]] | None, setting: Setting) -> list[Unit]:
    if setting.budget != DAY:
        return list(_units(configs, setting.budget))
    return day_units(stages, setting) if stages is not None else []


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
