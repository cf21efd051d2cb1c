"""The eleven recall studies (C1 to C11) as claims: the same runs, the same rules, told as a report tells them.

    units     a run of recall to a unit (linnet/experiments/recall); runs that studies share have one row
    read      the verdict of the study; its tables; numbers, charts and words of the files beside this one

A quick reproduction runs the brief budget of a study. An hour has the quick one for studies that are cheap, and for the
others the brief one with twice the steps and five seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from ...recall.config import RecallConfig
from ...recall.run import rows_of
from ...recall.studies import STUDIES
from ...recall.study import Study
from ...recall.work import SLOW, cost
from ..claim import UNTESTED, Claim, Finding, Row, Setting, Unit, untested
from .study_charts import CHARTS, TABLES
from .study_numbers import NUMBERS
from .study_words import TRIED, WORDS

BUDGETS = {"smoke": "smoke", "quick": "brief", "paper": "paper"}  # of a claim -> of a study
OWN = ("ranking", "drift", "rates", "iou", "forgetting")  # in an hour at sizes that were set before this was written
HOUR = dict.fromkeys(STUDIES, "brief") | dict.fromkeys(OWN, "quick")
LONGER, SEEDS = 2, 5  # of the brief ones in an hour: times the steps, seeds
LATER = ("state_law",)  # its brief runs leave most mixers undertrained, and decide nothing
PER_STEP, PER_COST = 1.5e-3, 1.3e-6  # seconds of one core


def claim_of(study: Study) -> Claim:
    words = WORDS[study.name]
    return Claim(
        name=study.name.replace("_", "-"),
        number=study.claim,
        paper="rebased",
        question=words.question,
        statement=words.statement,
        rule=study.rule + settled(study.name),
        units=partial(units, study),
        read=partial(read, study),
    )


def settled(name: str) -> str:
    """How the sizes of the small budgets came about, where more than one was tried."""
    budgets = "quick budget" if name in OWN else "quick and hour budgets"
    return f". Sizes of the {budgets}: {TRIED[name]}" if name in TRIED else ""


def units(study: Study, setting: Setting) -> list[Unit]:
    if setting.budget == "quick" and study.name in LATER:
        return []
    return list(made(study.name, setting.budget))


@cache
def made(name: str, budget: str) -> tuple[Unit, ...]:
    """The runs of a study for the budget of a claim; made once, since states are sized by trial."""
    found = STUDIES[name].configs(HOUR[name] if budget == "hour" else BUDGETS[budget])
    if budget == "hour" and HOUR[name] == "brief":
        found = enlarged(found)
    return tuple(Unit(rows_of, config, (config.to_dict(),), seconds(config)) for config in found)


def enlarged(found: Sequence[RecallConfig]) -> list[RecallConfig]:
    first = [config for config in found if config.seed == 0]
    return [config.but(steps=LONGER * config.steps, seed=seed) for config in first for seed in range(SEEDS)]


def seconds(config: RecallConfig) -> float:
    """A guess: what every step has to pay, and what its tokens cost."""
    return round(0.3 + PER_STEP * config.steps * SLOW.get(config.mixer, 1.0) + PER_COST * cost(config.to_dict()), 1)


def read(study: Study, rows: Sequence[Row]) -> Finding:
    if not rows:
        return untested("a quick run is too short for most of its models to learn anything: take --budget hour")
    found = study.verdict(rows)
    beside = TABLES[study.name](rows) if study.name in TABLES else []
    return Finding(
        found.outcome,
        found.sentence,
        [] if found.outcome == UNTESTED else NUMBERS[study.name](rows),
        WORDS[study.name].meaning(found.outcome),
        [*beside, *study.tables(rows)],
        CHARTS[study.name](rows),
    )


CLAIMS = tuple(claim_of(study) for study in STUDIES.values())
