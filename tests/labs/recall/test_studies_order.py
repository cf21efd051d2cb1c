"""What the studies of order find in made-up rows: the look back (C8), rewritten keys (C10), longer sequences (C11)."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rebased import extrapolation, forgetting, shift
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES
from linnet.labs.recall.config import RecallConfig
from tests.labs.recall.made_up import around, made_up, outcome

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
    ("means", "state", "printed"),
    [
        ((0.98, 0.06, 0.07), YES, (SEEN, "")),
        ((0.98, 0.06, 0.6), NO, (NOT_SEEN, "")),  # more than a guess
        ((0.98, 0.98, 0.07), NO, (NOT_SEEN, "")),
        ((0.98, 0.06, 0.29), OPEN, (UNTESTED, "undecided at this size")),
        ((0.8, 0.06, 0.07), YES, (UNTESTED, "softmax did not learn")),  # with the convolution, where it could
    ],
)
def test_shift(means: tuple[float, float, float], state: str, printed: tuple[str, str]) -> None:
    found = shift.verdict(by_setting(*means))
    assert (found.state, outcome(found)) == (state, printed)
    assert shift.numbers(by_setting(*means))[0].ours == pytest.approx(max(means[1:]))  # the higher one decides


def test_shift_says_what_it_lacks() -> None:
    few = shift.verdict(by_setting(0.98, 0.06, 0.07, seeds=2))
    assert (few.state, few.sentence) == (UNTESTED, "softmax, conv, 1, none: 2 seeds, and the rule needs 3 or more")
    assert "1 seed, and" in shift.verdict(by_setting(0.98, 0.06, 0.07, seeds=1)).sentence
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
    ("change", "state", "printed"),
    [
        ({}, YES, (SEEN, "")),
        ({"elu": (0.6, 0.97)}, YES, (SEEN, "")),  # shown, and not judged
        ({"rebased": (0.95, 0.78), "delta": (0.99, 0.9)}, NO, (NOT_SEEN, "")),  # ahead, and not far
        ({"based": (0.35, 0.34), "delta": (0.99, 0.97)}, OPEN, (UNTESTED, "undecided at this size")),  # as on kept keys
        ({"rebased": (0.95, 0.97)}, NO, (UNTESTED, "too easy")),
        ({"softmax": (0.05, 0.05)}, YES, (UNTESTED, "softmax did not learn")),  # it could: the training was too short
        ({"based": (0.1, 0.1)}, OPEN, (UNTESTED, "Based did not learn")),
        ({"gated_delta": (0.1, 0.1)}, NO, (UNTESTED, "gated delta did not learn")),
    ],
)
def test_forgetting(change: dict[str, tuple[float, float]], state: str, printed: tuple[str, str]) -> None:
    found = forgetting.verdict(rewritten(SPLIT | change))
    assert (found.state, outcome(found)) == (state, printed)


def test_forgetting_shows_the_smallest_lead_first() -> None:
    first, *others = forgetting.numbers(rewritten(SPLIT | {"based": (0.95, 0.55)}))
    assert first.what.startswith("recall of rewritten keys, the gated delta rule less Based")
    assert first.ours == pytest.approx(0.4)
    assert others[-1].ours == pytest.approx(0.99)  # softmax on keys written once


def test_forgetting_says_what_it_lacks_and_what_is_lost() -> None:
    assert forgetting.verdict(rewritten(SPLIT, seeds=2)).state == UNTESTED
    (table,) = forgetting.tables(rewritten({"delta": (0.9, 0.8), "based": (0.9, 0.5)}))
    assert table.rows[0][:4] == ("based", "0.900 [0.875, 0.925]", "0.500 [0.475, 0.525]", "0.400 [0.400, 0.400]")
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
    ("change", "state", "printed"),
    [
        ({}, YES, (SEEN, "")),  # learned positions cannot read on
        ({"learned": (0.96, 0.3)}, YES, (SEEN, "")),  # they read on, and are lost
        ({"none": (0.95, 0.4), "learned": (0.96, 0.8)}, NO, (NOT_SEEN, "")),
        ({"none": (0.95, 0.9), "learned": (0.95, 0.9)}, OPEN, (UNTESTED, "undecided at this size")),
        ({"learned": (0.95, 0.945)}, NO, (UNTESTED, "too easy")),  # everything is kept
        ({"none": (0.5, 0.5)}, OPEN, (UNTESTED, "softmax did not learn")),
        ({"learned": (0.5, None)}, OPEN, (UNTESTED, "softmax did not learn")),
    ],
)
def test_extrapolation(change: dict[str, tuple[float, float | None]], state: str, printed: tuple[str, str]) -> None:
    found = extrapolation.verdict(longer(LONG | change))
    assert (found.state, outcome(found)) == (state, printed)


def test_extrapolation_needs_every_mixer_and_leaves_out_what_did_not_learn() -> None:
    kept, lost = longer(LONG, ("softmax", "based")), longer(LONG | {"none": (0.95, 0.0)}, ("rebased",))
    other = extrapolation.verdict(kept + longer(LONG | {"none": (0.95, 0.1), "learned": (0.95, 0.8)}, ("rebased",)))
    assert other.state == OPEN
    absent = extrapolation.verdict(kept)
    assert (absent.state, absent.sentence) == (UNTESTED, "rebased, none: 0 seeds, and the rule needs 3 or more")
    unable = kept + longer(LONG | {"none": (0.5, 0.1)}, ("rebased",))
    assert extrapolation.verdict(unable).state == YES
    assert "left out, because it had not learned its training length: ReBased" in extrapolation.verdict(unable).sentence
    assert not any("ReBased" in number.what for number in extrapolation.numbers(unable))
    assert extrapolation.numbers(kept + lost)[0].what.split(", ")[1] == "ReBased"  # the smallest gap decides


def test_extrapolation_shows_what_cannot_be_read() -> None:
    (table,) = extrapolation.tables(longer(LONG, ("softmax",)))
    assert table.head[2:5] == ("N=64, K=8", "N=512, K=8", "N=512, K=64")
    assert table.rows == [
        ("softmax", "none", "0.950", "0.930", "0.010", "3"),
        ("softmax", "learned", "0.960", "-", "-", "3"),
    ]
