"""Feature map by task: every outcome of the rule on made-up scores, and what a reader sees."""

from __future__ import annotations

import pytest

from linnet.labs.claims.open.kernel_task import CLAIM
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Heat, figures
from linnet.labs.core.results import Row

from .made_up import arm_rows

ELU = (0.60, 0.62, 0.64)


def rows(
    wide: float = 0.3,
    relu: float = -0.1,
    dead: float = 0.25,
    majority: float = 0.0,
    noise: float = 0.0,
    seeds: int = 3,
) -> list[Row]:
    """Differences to elu: of polynomial and relu on recall, of every other map on majority; seed 1 turns the noise."""
    shift = {"elu": 0.0, "relu": relu, "polynomial": wide, "softmax": 0.35}
    collected = []
    for one, by in shift.items():
        spread = (noise, -noise, noise)
        scores = [base + by + (x if one != "elu" else 0.0) for base, x in zip(ELU, spread, strict=True)][:seeds]
        size = 1000 if one == "polynomial" else 100
        collected += arm_rows("recall", one, scores, length=24, dead=dead if one == "relu" else 0.0, state_bytes=size)
        counted = [0.99 + (0.0 if one == "elu" else majority)] * seeds
        collected += arm_rows("majority", one, counted, length=32, dead=0.0)
        collected += arm_rows("text", one, [3.0 - by] * seeds, length=64, dead=0.0)
    return collected


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(), CONFIRMED),
        (rows(wide=-0.1), REFUTED),
        (rows(relu=0.1), REFUTED),
        (rows(dead=0.0), REFUTED),  # relu is worse, but not by dead features
        (rows(majority=-0.05), REFUTED),
        (rows(wide=0.0), UNCLEAR),
        (rows(relu=0.0, noise=0.05), UNCLEAR),
        (rows(seeds=2), UNTESTED),
        ([row for row in rows() if row["config"]["task"] != "majority"], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows(majority=-0.01))
    shown = {number.what: number for number in finding.numbers}
    first = finding.numbers[0]
    assert first.what == "recall of 6 pairs in 24 tokens, share of values right: polynomial minus elu"
    assert first.ours == pytest.approx(0.3)
    assert first.of == "3 seeds"
    assert shown["features of relu that are dead after training on recall"].ours == pytest.approx(25)
    furthest = shown["majority, share right: the map that is furthest from elu, minus elu"]
    assert furthest.ours == pytest.approx(-0.01)
    assert "recall 24 polynomial" in finding.sentence
    assert "text 64 polynomial" in finding.sentence
    assert finding.tables[0].rows[0] == ("elu", *(f"{figures(x)} (100 B)" for x in (0.99, 0.62, 3.0)))
    assert finding.meaning.startswith("The choice matters most on recall 24 (take polynomial there) and least on major")


def test_the_shades_are_shares_of_the_best_of_a_column() -> None:
    heat = CLAIM.read(rows()).charts[0]
    assert isinstance(heat, Heat)
    assert list(heat.rows) == ["elu", "relu", "polynomial", "softmax"]
    assert list(heat.columns) == ["majority 32", "recall 24", "text 64"]
    assert heat.values[3][1] == 1.0  # softmax recalls most
    assert heat.values[0][1] == pytest.approx(0.62 / 0.97)
    assert heat.values[0][2] == pytest.approx((3 - 0.35) / 3)  # bits: the fewest over its own


def test_text_that_diverged_is_left_out() -> None:
    made = [row for row in rows() if row["config"]["task"] != "text"]
    made += arm_rows("text", "elu", [None, None, None], length=64)
    made += arm_rows("text", "relu", [3.0, 3.1, 3.2], length=64)
    assert CLAIM.read(made).tables[0].rows[0][-1] == "-"
