"""Feature map by task: every outcome of the rule on made-up scores, and what a reader sees."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.open.kernel_task import CLAIM
from linnet.labs.core.claim import Heat, figures
from linnet.labs.core.licence import licence
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED

from .made_up import arm_rows

ELU = (0.52, 0.54, 0.50, 0.55, 0.49)


def rows(
    wide: float = 0.3,
    majority: float = 0.995,
    noise: float = 0.0,
    elu: float = 0.0,
    softmax: float = 0.97,
    late: float = 0.0,
    length: int = 64,
    width: int = 64,
    seeds: int = 5,
) -> list[Row]:
    """wide: lead of polynomial over elu on recall; majority: score of relu; every second seed turns the noise."""
    base = [score + elu for score in ELU[:seeds]]
    recalled = {
        "elu": base,
        "relu": [score - 0.1 for score in base],
        "polynomial": [score + wide + noise * (-1) ** seed for seed, score in enumerate(base)],
        "softmax": [softmax] * seeds,
    }
    collected = []
    for one, scores in recalled.items():
        dead, size = 0.25 if one == "relu" else 0.0, 1000 if one == "polynomial" else 100
        sizes: dict[str, Any] = {"d_model": width, "dead": dead, "state_bytes": size}
        collected += arm_rows("recall", one, scores, length=length, late=late if one == "elu" else 0.0, **sizes)
        counted = [majority if one == "relu" else 0.99] * seeds
        collected += arm_rows("majority", one, counted, length=32, d_model=32, dead=0.0)
        text = 3.0 - sum(scores) / seeds
        collected += arm_rows("text", one, [text] * seeds, length=64, d_model=32, dead=0.0)
    return collected


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(), HOLDS),
        (rows(wide=-0.1), FAILS),
        (rows(wide=0.01), FAILS),  # ahead, but by less than the rule wants
        (rows(majority=0.9), FAILS),
        (rows(noise=0.4), CLOSE),
        (rows(length=24), SEEN),
        (rows(width=16), SEEN),
        (rows(length=24, wide=-0.1, seeds=3), NOT_SEEN),
        (rows(length=24, late=0.1), SEEN),  # convergence is asked of verdicts only
        (rows(seeds=4), UNTESTED),
        (rows(length=24, seeds=2), UNTESTED),
        ([row for row in rows() if row["config"]["task"] != "majority"], UNTESTED),
        ([row for row in rows() if row["config"]["mixer"] != "softmax"], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


@pytest.mark.parametrize(
    ("made", "short"),
    [
        (rows(softmax=0.4), "softmax did not learn"),
        (rows(softmax=0.4, length=24), "softmax did not learn"),  # outside the regime too
        (rows(elu=0.48, wide=-0.1), "too easy"),
        (rows(late=0.1), "elu had not converged"),
    ],
)
def test_each_control_withholds_the_verdict(made: list[Row], short: str) -> None:
    allowed = licence(CLAIM.read(made).evidence)
    assert (allowed.outcome, allowed.short) == (UNTESTED, short)


def test_the_part_that_decides_comes_first() -> None:
    recall = "share of recalled values, 64 tokens, polynomial (the wide map with the smaller lead) - elu"
    majority = "share of majorities, 32 tokens, relu (the worst of the linear maps)"
    assert [number.what for number in CLAIM.read(rows(majority=0.985)).numbers[:2]] == [recall, majority]
    assert [number.what for number in CLAIM.read(rows(majority=0.9)).numbers[:2]] == [majority, recall]
    assert [number.what for number in CLAIM.read(rows(majority=0.9, wide=-0.1)).numbers[:2]] == [recall, majority]


def test_the_wide_map_with_the_smaller_lead_decides() -> None:
    behind = arm_rows("recall", "dpfp", [score - 0.1 for score in ELU], length=64, d_model=64, dead=0.0)
    behind += arm_rows("majority", "dpfp", [0.99] * 5, length=32, d_model=32)
    finding = CLAIM.read([*rows(), *behind])
    assert finding.outcome == FAILS
    assert finding.numbers[0].ours == pytest.approx(-0.1)


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows())
    shown = {number.what: number for number in finding.numbers}
    assert finding.numbers[0].ours == pytest.approx(0.3)
    assert finding.numbers[0].of == "5 seeds"
    assert shown["features of relu that are dead after training on recall"].ours == pytest.approx(25)
    assert finding.scope == "d = 64, 64 tokens of recall, 32 of majority, 5 seeds"
    assert "recall 64 polynomial" in finding.sentence
    assert "text 64 polynomial" in finding.sentence
    assert finding.tables[0].rows[0] == ("elu", *(f"{figures(x)} (100 B)" for x in (0.99, 0.52, 2.48)))
    assert "polynomial keeps 10 times the bytes of elu" in finding.meaning
    assert "pay for a map" not in CLAIM.read(rows(wide=-0.1)).meaning


def test_the_shades_are_shares_of_the_best_of_a_column() -> None:
    heat = CLAIM.read(rows()).charts[0]
    assert isinstance(heat, Heat)
    assert list(heat.rows) == ["elu", "relu", "polynomial", "softmax"]
    assert list(heat.columns) == ["majority 32", "recall 64", "text 64"]
    assert heat.values[3][1] == 1.0  # softmax recalls most
    assert heat.values[0][1] == pytest.approx(0.52 / 0.97)
    assert heat.values[0][2] == pytest.approx((3 - 0.97) / (3 - 0.52))  # bits: the fewest over its own


def test_text_that_diverged_is_left_out() -> None:
    made = [row for row in rows() if row["config"]["task"] != "text"]
    made += arm_rows("text", "elu", [None, None, None], length=64)
    made += arm_rows("text", "relu", [3.0, 3.1, 3.2], length=64)
    assert CLAIM.read(made).tables[0].rows[0][-1] == "-"
