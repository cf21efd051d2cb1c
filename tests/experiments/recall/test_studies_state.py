"""What the studies of the state say of made-up rows: bytes (C7) and the ranking at equal bytes (C1)."""

from __future__ import annotations

import pytest

from linnet.experiments.recall.config import RecallConfig
from linnet.experiments.recall.sizes import FIXED, mixer_bytes
from linnet.experiments.recall.studies import ranking, state_law
from linnet.experiments.recall.study import CONFIRMED, REFUTED, UNCLEAR, UNTESTED
from linnet.experiments.results import Row
from tests.experiments.recall.made_up import around, made_up

SIZES = (2600, 5460, 11700)
GROWING = dict.fromkeys(state_law.MIXERS, (0.2, 0.4, 0.8)) | {"delta": (0.4, 0.9, 0.99)}
RANKED = {"softmax": 0.995, "based": 0.9, "rebased": 0.92, "elu": 0.4, "identity": 0.3, "conv": 0.05}


def by_bytes(curves: dict[str, tuple[float, ...]], seeds: int = 3) -> list[Row]:
    """Rows of these mean accuracies at SIZES; keys of width 1, 2, 3 stand for the sizes, the bytes are made up too."""
    found = []
    for mixer, means in curves.items():
        for i, (size, mean) in enumerate(zip(SIZES, means, strict=True)):
            width = {"options": {"window": i + 1}} if mixer == "window" else {"key_dim": i + 1}
            config = RecallConfig(mixer=mixer, **width)
            found += made_up(config, around(mean)[:seeds], mixer_bytes=size + 20 * (mixer == "delta"))
    return found


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
    found = state_law.curves(rows)
    assert list(found["delta"]) == [2620, 5480, 11720]
    assert state_law.against_additive(found) == {}
    assert state_law.verdict(rows).outcome == UNCLEAR


def test_rank_correlation_by_hand() -> None:
    """Ranks 0, 2, 1 of three: 1 - 6 (0 + 1 + 1) / (3 (9 - 1)) = 0.5; ties share their rank."""

    def found(*means: float) -> float | None:
        return state_law.rank_correlation({size: {0: mean} for size, mean in enumerate(means)})

    assert found(0.1, 0.9, 0.5) == pytest.approx(0.5)
    assert found(0.1, 0.2, 0.3) == pytest.approx(1)
    assert found(0.1, 0.1, 0.3) == pytest.approx(0.75**0.5)
    assert found(0.1, 0.1) is None


def test_states_of_the_runs_are_those_asked_for() -> None:
    made = state_law.made(state_law.OURS, state_law.STATES[1:2], (1e-2,), 1)
    for config in (config for config in made if config.mixer != "window"):
        size = mixer_bytes(config.mixer, 64, 64, config.options, key_dim=config.key_dim)
        assert abs(size / state_law.STATES[1] - 1) < 0.05
    assert [config.options["window"] for config in made if config.mixer == "window"] == [16, 32, 48]
    assert {config.mixer for config in made} == set(state_law.MIXERS)


def ranked(means: dict[str, float], width: int = 64, seeds: int = 3) -> list[Row]:
    found = []
    for mixer, mean in means.items():
        values = [min(1.0, value) for value in around(mean)[:seeds]]
        found += made_up(RecallConfig(mixer=mixer, d_model=width), values, mixer_bytes=1000)
    return found


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
    for config in ranking.configs("quick"):
        if config.mixer not in FIXED and config.seed == 0:
            size = mixer_bytes(config.mixer, config.d_model, 64, config.options, key_dim=config.key_dim)
            assert size == {32: 5940, 64: 11700}[config.d_model]
