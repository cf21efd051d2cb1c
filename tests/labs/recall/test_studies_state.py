"""What the studies of the state find in made-up rows: bytes (C7) and the ranking at equal bytes (C1)."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rebased import ranking, state_law
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.sizes import FIXED, mixer_bytes
from tests.labs.recall.made_up import around, made_up, outcome

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
    ("change", "state", "printed"),
    [
        ({}, YES, (SEEN, "")),
        ({"delta": (0.1, 0.9, 0.99)}, YES, (SEEN, "")),  # its lead over sums is shown, and not judged
        ({"gla": (0.2, 0.5, 0.4)}, NO, (NOT_SEEN, "")),  # a larger state is worse
        ({"mamba2": (0.4, 0.41, 0.42)}, NO, (NOT_SEEN, "")),  # hardly grows
        ({"window": (0.96, 0.99, 0.98)}, NO, (UNTESTED, "too easy")),  # nothing left to gain
        ({"gla": (0.1, 0.15, 0.2)}, YES, (UNTESTED, "the weakest mixer did not learn")),
    ],
)
def test_state_law(change: dict[str, tuple[float, ...]], state: str, printed: tuple[str, str]) -> None:
    found = state_law.verdict(by_bytes(GROWING | change))
    assert (found.state, outcome(found)) == (state, printed)


def test_a_gain_within_the_spread_of_the_seeds_decides_nothing() -> None:
    rows = by_bytes(GROWING)
    for row in rows:
        if row["config"]["mixer"] == "gla" and row["metrics"]["mixer_bytes"] == SIZES[-1]:
            row["metrics"]["accuracy"] -= 0.4 * row["config"]["seed"]
    assert state_law.verdict(rows).state == OPEN


@pytest.mark.parametrize(
    ("change", "what", "ours"),
    [
        ({"gla": (0.2, 0.5, 0.4)}, "gain of recall from 5,460 to 11,700 bytes, GLA", -0.1),
        ({"mamba2": (0.4, 0.41, 0.42)}, "gain of recall from the smallest to the largest state, Mamba-2", 0.02),
        ({"elu": (0.4, 0.6, 0.7)}, "gain of recall from the smallest to the largest state, elu + 1", 0.3),
    ],
)
def test_the_gain_that_decides_is_shown_first(change: dict[str, tuple[float, ...]], what: str, ours: float) -> None:
    first = state_law.numbers(by_bytes(GROWING | change))[0]
    assert (first.what, round(first.ours, 6)) == (what, ours)


def test_state_law_says_what_it_lacks() -> None:
    few = state_law.verdict(by_bytes(GROWING, seeds=2))
    assert (few.state, few.sentence) == (UNTESTED, "based, 2600: 2 seeds, and the rule needs 3 or more")
    none = state_law.verdict(by_bytes({name: of for name, of in GROWING.items() if name != "gla"}))
    assert (none.state, none.sentence) == (UNTESTED, "gla, any size: 0 seeds, and the rule needs 3 or more")
    one = [row for row in by_bytes(GROWING) if row["metrics"]["mixer_bytes"] < 3000]
    assert state_law.verdict(one).state == UNTESTED


def test_only_states_of_the_same_bytes_are_compared() -> None:
    rows = by_bytes(GROWING)
    for row in rows:
        if row["config"]["mixer"] != "delta":
            row["metrics"]["mixer_bytes"] *= 10
    result = state_law.curves(rows)
    assert list(result["delta"]) == [2620, 5480, 11720]
    assert state_law.against_additive(result) == {}
    assert len(state_law.against_additive(state_law.curves(by_bytes(GROWING)))) == 9


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
    ("change", "state", "printed"),
    [
        ({}, YES, (SEEN, "")),
        ({"identity": 0.95, "conv": 0.7}, YES, (SEEN, "")),  # shown, and not judged
        ({"elu": 0.95}, NO, (NOT_SEEN, "")),  # above both
        ({"elu": 0.91}, NO, (NOT_SEEN, "")),  # above one
        ({"elu": 0.9}, OPEN, (UNTESTED, "undecided at this size")),
        ({"elu": 1.0}, NO, (UNTESTED, "too easy")),
        ({"elu": 0.2}, YES, (UNTESTED, "elu + 1 did not learn")),
        ({"softmax": 0.9}, YES, (UNTESTED, "softmax did not learn")),
    ],
)
def test_ranking(change: dict[str, float], state: str, printed: tuple[str, str]) -> None:
    found = ranking.RACE.verdict(ranked(RANKED | change))
    assert (found.state, outcome(found)) == (state, printed)


def test_ranking_of_two_widths_is_what_both_say() -> None:
    rows = ranked(RANKED, 32)
    assert ranking.RACE.verdict(rows + ranked(RANKED)).state == YES
    assert ranking.RACE.verdict(rows + ranked(RANKED | {"elu": 0.95})).state == OPEN
    assert ranking.RACE.verdict(rows + ranked(RANKED, seeds=2)).state == UNTESTED
    assert ranking.RACE.verdict([row for row in rows if row["config"]["mixer"] != "softmax"]).state == UNTESTED


@pytest.mark.parametrize(
    ("elu", "what"),
    [
        ((0.4, 0.5), "recall of Based less that of elu + 1 at the same bytes of state, d 64"),  # the smallest lead
        ((0.95, 0.91), "recall of Based less that of elu + 1 at the same bytes of state, d 64"),  # the least behind
    ],
)
def test_the_lead_that_decides_is_shown_first(elu: tuple[float, float], what: str) -> None:
    rows = [row for width, value in zip((32, 64), elu, strict=True) for row in ranked(RANKED | {"elu": value}, width)]
    assert ranking.RACE.numbers(rows)[0].what.startswith(what)


def test_ranking_is_at_equal_bytes() -> None:
    for config in ranking.configs("long"):
        if config.mixer not in FIXED and config.seed == 0:
            size = mixer_bytes(config.mixer, config.d_model, 64, config.options, key_dim=config.key_dim)
            assert size == {32: 5940, 64: 11700}[config.d_model]
