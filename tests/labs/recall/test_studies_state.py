"""What the studies of the state say of made-up rows: bytes (C7) and the ranking at equal bytes (C1)."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rebased import ranking, state_law
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.sizes import FIXED, mixer_bytes
from tests.labs.recall.made_up import around, made_up

SIZES = (2600, 5460, 11700)
GROWING = dict.fromkeys(state_law.MIXERS, (0.2, 0.4, 0.8)) | {"delta": (0.4, 0.9, 0.99)}
RANKED = {"softmax": 0.995, "based": 0.9, "rebased": 0.92, "elu": 0.4, "identity": 0.3, "conv": 0.05}


def by_bytes(curves: dict[str, tuple[float, ...]], seeds: int = 3) -> list[Row]:
    """Rows of these mean accuracies at SIZES; keys of width 1, 2, 3 stand for the sizes, the bytes are made up too."""
    result = []
    for mixer, means in curves.items():
        for i, (size, mean) in enumerate(zip(SIZES, means, strict=True)):
            width = {"options": {"window": i + 1}} if mixer == "window" else {"key_dim": i + 1}
            config = RecallConfig(mixer=mixer, **width)
            result += made_up(config, around(mean)[:seeds], mixer_bytes=size + 20 * (mixer == "delta"))
    return result


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, CONFIRMED),
        ({"window": (0.97, 0.99, 0.98)}, CONFIRMED),  # nothing left to gain
        ({"gla": (0.2, 0.5, 0.4)}, REFUTED),  # a larger state is worse
        ({"mamba2": (0.2, 0.21, 0.22)}, UNCLEAR),  # hardly grows
        ({"delta": (0.1, 0.9, 0.99)}, REFUTED),  # behind at the smallest size
        ({"delta": (0.2, 0.9, 0.99)}, UNCLEAR),  # level there
        ({"based": (0.2, 0.4, 0.999), "delta": (0.4, 0.9, 0.98)}, CONFIRMED),  # both solved: not told apart
    ],
)
def test_state_law(change: dict[str, tuple[float, ...]], outcome: str) -> None:
    assert state_law.verdict(by_bytes(GROWING | change)).outcome == outcome


def test_state_law_says_what_it_lacks() -> None:
    few = state_law.verdict(by_bytes(GROWING, seeds=2))
    assert (few.outcome, few.sentence) == (UNTESTED, "based, 2600: 2 seeds, and the rule wants 3 or more")
    none = state_law.verdict(by_bytes({name: of for name, of in GROWING.items() if name != "gla"}))
    assert (none.outcome, none.sentence) == (UNTESTED, "gla, any size: 0 seeds, and the rule wants 3 or more")
    one = [row for row in by_bytes(GROWING) if row["metrics"]["mixer_bytes"] < 3000]
    assert state_law.verdict(one).outcome == UNTESTED


def test_only_states_of_the_same_bytes_are_compared() -> None:
    rows = by_bytes(GROWING)
    for row in rows:
        if row["config"]["mixer"] != "delta":
            row["metrics"]["mixer_bytes"] *= 10
    result = state_law.curves(rows)
    assert list(result["delta"]) == [2620, 5480, 11720]
    assert state_law.against_additive(result) == {}
    assert state_law.verdict(rows).outcome == UNCLEAR


def test_rank_correlation_by_hand() -> None:
    """Ranks 0, 2, 1 of three: 1 - 6 (0 + 1 + 1) / (3 (9 - 1)) = 0.5; ties share their rank."""

    def result(*means: float) -> float | None:
        return state_law.rank_correlation({size: {0: mean} for size, mean in enumerate(means)})

    assert result(0.1, 0.9, 0.5) == pytest.approx(0.5)
    assert result(0.1, 0.2, 0.3) == pytest.approx(1)
    assert result(0.1, 0.1, 0.3) == pytest.approx(0.75**0.5)
    assert result(0.1, 0.1) is None


def test_states_of_the_runs_are_those_asked_for() -> None:
    runs = state_law.grid(state_law.OURS, state_law.STATES[1:2], (1e-2,), 1)
    for config in (config for config in runs if config.mixer != "window"):
        size = mixer_bytes(config.mixer, 64, 64, config.options, key_dim=config.key_dim)
        assert abs(size / state_law.STATES[1] - 1) < 0.05
    assert [config.options["window"] for config in runs if config.mixer == "window"] == [16, 32, 48]
    assert {config.mixer for config in runs} == set(state_law.MIXERS)


def ranked(means: dict[str, float], width: int = 64, seeds: int = 3) -> list[Row]:
    result = []
    for mixer, mean in means.items():
        values = [min(1.0, value) for value in around(mean)[:seeds]]
        result += made_up(RecallConfig(mixer=mixer, d_model=width), values, mixer_bytes=1000)
    return result


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, CONFIRMED),
        ({"identity": 0.895}, UNCLEAR),  # below, and overlaps
        ({"elu": 0.95}, REFUTED),  # above both
        ({"softmax": 0.9}, REFUTED),
        ({"softmax": 0.985}, UNCLEAR),  # its interval has .99 in it
        ({"conv": 0.7}, UNCLEAR),  # lower, not far lower
    ],
)
def test_ranking(change: dict[str, float], outcome: str) -> None:
    assert ranking.verdict(ranked(RANKED | change)).outcome == outcome


def test_ranking_of_two_widths_is_what_both_say() -> None:
    rows = ranked(RANKED, 32)
    assert ranking.verdict(rows + ranked(RANKED)).outcome == CONFIRMED
    assert ranking.verdict(rows + ranked(RANKED | {"elu": 0.95})).outcome == UNCLEAR
    assert ranking.verdict(rows + ranked(RANKED, seeds=2)).outcome == UNTESTED
    assert ranking.verdict([row for row in rows if row["config"]["mixer"] != "conv"]).outcome == UNTESTED


def test_ranking_is_at_equal_bytes() -> None:
    for config in ranking.configs("long"):
        if config.mixer not in FIXED and config.seed == 0:
            size = mixer_bytes(config.mixer, config.d_model, 64, config.options, key_dim=config.key_dim)
            assert size == {32: 5940, 64: 11700}[config.d_model]
