"""What the studies of order say of made-up rows: the look back (C8), rewritten keys (C10), longer sequences (C11)."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rebased import extrapolation, forgetting, shift
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED
from linnet.labs.recall.config import RecallConfig
from tests.labs.recall.made_up import around, made_up

ASKED = 1000  # questions of a slice
SPLIT = {
    "softmax": (0.99, 0.5),
    "based": (0.9, 0.5),
    "rebased": (0.95, 0.5),
    "elu": (0.1, 0.05),
    "delta": (0.99, 0.98),
    "gated_delta": (0.98, 0.95),
}  # kept, updated
LONG = {"none": (0.95, 0.93), "learned": (0.96, None)}  # at 64 tokens, at 512


def by_setting(ahead: float, alone: float, placed: float, seeds: int = 3) -> list[Row]:
    collected = []
    for setting, mean in ((shift.WITH, ahead), (shift.WITHOUT, alone), (shift.PLACED, placed)):
        mixer, first, depth, positions = setting
        config = RecallConfig(mixer=mixer, first=first.replace("nothing", ""), depth=depth, positions=positions)
        collected += made_up(config, around(mean)[:seeds])
    return collected


@pytest.mark.parametrize(
    ("means", "outcome"),
    [
        ((0.98, 0.06, 0.07), CONFIRMED),
        ((0.98, 0.06, 0.6), UNCLEAR),  # neither fails nor passes
        ((0.8, 0.06, 0.07), UNCLEAR),  # so the convolution does
        ((0.98, 0.98, 0.07), REFUTED),  # passes alone
        ((0.98, 0.06, 0.98), REFUTED),
        ((0.1, 0.06, 0.07), REFUTED),  # fails with it too
    ],
)
def test_shift(means: tuple[float, float, float], outcome: str) -> None:
    assert shift.verdict(by_setting(*means)).outcome == outcome


def test_shift_says_what_it_lacks() -> None:
    few = shift.verdict(by_setting(0.98, 0.06, 0.07, seeds=2))
    assert (few.outcome, few.sentence) == (UNTESTED, "softmax, conv, 1, none: 2 seeds, and the rule wants 3 or more")
    (table,) = shift.tables(by_setting(0.98, 0.06, 0.07))
    assert [row[1] for row in table.rows] == ["conv", "nothing", "nothing"]


def rewritten(means: dict[str, tuple[float, float]], seeds: int = 3) -> list[Row]:
    collected = []
    for mixer, (kept, updated) in means.items():
        config = RecallConfig(mixer=mixer, task="forgetting", pairs=8, updates=4)
        rows = made_up(config, [(kept + updated) / 2] * seeds)
        for row, one, two in zip(rows, around(kept), around(updated), strict=False):
            row["metrics"]["slices"] = {"kept": [ASKED * one, ASKED], "updated": [ASKED * two, ASKED]}
        collected += rows
    return collected


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, CONFIRMED),  # elu knows too little to count
        ({"elu": (0.6, 0.97)}, REFUTED),  # until it does
        ({"rebased": (0.95, 0.97)}, REFUTED),
        ({"rebased": (0.95, 0.85)}, UNCLEAR),  # a lead, and not a clear one
        ({"based": (0.35, 0.34), "delta": (0.99, 0.97)}, UNCLEAR),  # as far ahead on kept keys: not about updates
        ({"based": (0.1, 0.1), "rebased": (0.1, 0.1)}, UNTESTED),
        ({"delta": (0.1, 0.1), "gated_delta": (0.1, 0.1)}, UNTESTED),
        ({"delta": (0.1, 0.1)}, CONFIRMED),  # the other rule alone
    ],
)
def test_forgetting(change: dict[str, tuple[float, float]], outcome: str) -> None:
    assert forgetting.verdict(rewritten(SPLIT | change)).outcome == outcome


def test_forgetting_says_what_it_lacks_and_what_is_lost() -> None:
    assert forgetting.verdict(rewritten(SPLIT, seeds=2)).outcome == UNTESTED
    (table,) = forgetting.tables(rewritten({"delta": (0.9, 0.8), "based": (0.9, 0.5)}))
    assert table.rows[0][:4] == ("based", "0.900 [0.890, 0.910]", "0.500 [0.490, 0.510]", "0.400 [0.400, 0.400]")
    assert [row[0] for row in table.rows] == ["based", "delta"]


def longer(means: dict[str, tuple[float, float | None]], mixers: tuple[str, ...] = extrapolation.MIXERS) -> list[Row]:
    collected = []
    for mixer in mixers:
        for positions, (short, long) in means.items():
            config = RecallConfig(mixer=mixer, positions=positions, pairs=8, vocab_size=1024)
            for row, change in zip(made_up(config, around(short)), around(0.0), strict=True):
                far = None if long is None else long + change
                row["metrics"]["longer"] = [
                    {"seq_len": 64, "pairs": 8, "accuracy": short + change},
                    {"seq_len": 512, "pairs": 8, "accuracy": far},
                    {"seq_len": 512, "pairs": 64, "accuracy": None if far is None else 0.01},
                ]
                collected.append(row)
    return collected


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, CONFIRMED),
        ({"learned": (0.96, 0.3)}, CONFIRMED),  # reads on, and is lost
        ({"none": (0.95, 0.4)}, REFUTED),
        ({"learned": (0.96, 0.95)}, REFUTED),
        ({"none": (0.95, 0.8549)}, UNCLEAR),  # .9 is in the interval
        ({"none": (0.5, 0.5)}, UNTESTED),  # has learned too little
        ({"learned": (0.0, None)}, UNTESTED),
    ],
)
def test_extrapolation(change: dict[str, tuple[float, float | None]], outcome: str) -> None:
    assert extrapolation.verdict(longer(LONG | change)).outcome == outcome


def test_extrapolation_asks_every_mixer() -> None:
    kept, lost = longer(LONG, ("softmax", "based")), longer(LONG | {"none": (0.95, 0.4)}, ("rebased",))
    assert extrapolation.verdict(kept + lost).outcome == UNCLEAR
    absent = extrapolation.verdict(kept)
    assert (absent.outcome, absent.sentence) == (UNTESTED, "rebased, none: 0 seeds, and the rule wants 3 or more")


def test_extrapolation_shows_what_cannot_be_read() -> None:
    (table,) = extrapolation.tables(longer(LONG, ("softmax",)))
    assert table.head[2:5] == ("N=64, K=8", "N=512, K=8", "N=512, K=64")
    assert table.rows == [
        ("softmax", "none", "0.950", "0.930", "0.010", "3"),
        ("softmax", "learned", "0.960", "-", "-", "3"),
    ]
