"""C2 length and C3 ablation: what their rules make of rows, and that every budget can be built."""

from __future__ import annotations

from types import ModuleType

import pytest

from linnet.labs.claims.rebased import ablation, length
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import FAILS, HOLDS, NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.kernels import KERNELS
from tests.labs.recall.made_up import around, made_up, outcome, unsettled

OURS, PAPERS = (length.BASE, 32, 128), (length.PAPER, 256, 2048)  # a run, and the two lengths
Sizes = tuple[RecallConfig, int, int]


def lengths(based: float, rebased: float, short: float = 0.9, seeds: int = 3, sizes: Sizes = OURS) -> list[Row]:
    """Two fillers, two widths; Based and ReBased drop by so much from short to long, a little different by seed."""
    rows, (start, first, last) = [], sizes
    for filler in ("zero", "random"):
        for width in (24, 48):
            for mixer, drop in (("based", based), ("rebased", rebased)):
                base = start.replace(mixer=mixer, filler=filler, d_model=width, seq_len=first)
                rows += made_up(base, [short] * seeds)
                rows += made_up(base.replace(seq_len=last), [short - drop + 0.01 * seed for seed in range(seeds)])
    return rows


@pytest.mark.parametrize(
    ("based", "rebased", "small", "large"),
    [
        (0.3, 0.1, SEEN, HOLDS),
        (0.17, 0.12, SEEN, HOLDS),
        (0.14, 0.12, NOT_SEEN, FAILS),  # less, and not clearly less
        (0.1, 0.3, NOT_SEEN, FAILS),
    ],
)
def test_length_compares_what_is_lost(based: float, rebased: float, small: str, large: str) -> None:
    result = length.verdict(lengths(based, rebased))
    assert outcome(result)[0] == small, result.sentence
    assert "from 32 to 128 tokens" in result.sentence
    published = lengths(based, rebased, seeds=5, sizes=PAPERS)
    assert outcome(length.verdict(published))[0] == large
    assert outcome(length.verdict(unsettled(published))) == (UNTESTED, "either kernel had not converged")


def test_length_says_nothing_of_models_that_learned_nothing_or_too_much_or_of_too_few_seeds() -> None:
    assert outcome(length.verdict(lengths(0.1, 0.0, short=0.2))) == (UNTESTED, "the weaker kernel did not learn")
    assert outcome(length.verdict(lengths(0.01, 0.0, short=0.97))) == (UNTESTED, "too easy")
    few = length.verdict(lengths(0.3, 0.1, seeds=2))
    assert few.state == UNTESTED
    assert "2 seeds, and the rule needs 3" in few.sentence


def changed(rows: list[Row], change: float, *places: tuple[str, int]) -> list[Row]:
    """Return the rows with another recall of Based at 128 tokens, with these fillers and widths."""
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if config.mixer == "based" and config.seq_len == 128 and (config.filler, config.d_model) in places:
            row["metrics"]["accuracy"] += change
    return rows


@pytest.mark.parametrize(
    ("rows", "state", "first"),
    [
        (changed(lengths(0.1, 0.1), -0.2, ("zero", 24)), OPEN, "random filler, d 24"),  # one place alone
        (changed(lengths(0.1, 0.1), -0.2, ("zero", 24), ("random", 48)), YES, "zero filler, d 24"),
        (changed(lengths(0.3, 0.1), 0.4, ("zero", 24)), YES, "random filler, d 48"),  # no room at that place
        (changed(lengths(0.3, 0.1), 0.23, ("zero", 24)), OPEN, "zero filler, d 24"),  # one place denies it
    ],
)
def test_two_places_must_show_it_and_none_deny_it(rows: list[Row], state: str, first: str) -> None:
    assert length.verdict(rows).state == state
    assert length.numbers(rows)[0].what.endswith(first)


def kernels(**accuracy: float) -> list[Row]:
    """Every kernel of the ablation at 0.6, three seeds, or what is given for it."""
    rows = []
    for name, (mixer, options) in KERNELS.items():
        rows += made_up(ablation.OURS.replace(mixer=mixer, options=options), around(accuracy.get(name, 0.6)))
    return rows


def test_ablation_names_every_kernel_once() -> None:
    assert len(KERNELS) == len(
        {ablation.name_of(ablation.OURS.replace(mixer=m, options=o)) for m, o in KERNELS.values()}
    )
    (result,) = ablation.tables(kernels())
    assert [row[0] for row in result.rows] == list(KERNELS)


@pytest.mark.parametrize(
    ("accuracy", "state", "printed"),
    [
        ({ablation.FULL: 0.9}, YES, (SEEN, "")),
        ({}, NO, (NOT_SEEN, "")),
        ({ablation.FULL: 0.63}, NO, (NOT_SEEN, "")),  # ahead, and not clearly
        ({ablation.PLAIN: 1.0}, NO, (UNTESTED, "too easy")),
        ({ablation.PLAIN: 0.96, ablation.FULL: 1.0}, NO, (UNTESTED, "too easy")),  # .05 cannot be had
        ({ablation.PLAIN: 0.1}, YES, (UNTESTED, "x^2 did not learn")),
    ],
)
def test_ablation_is_about_rebased_and_its_plain_square(
    accuracy: dict[str, float], state: str, printed: tuple[str, str]
) -> None:
    found = ablation.verdict(kernels(**accuracy))
    assert (found.state, outcome(found)) == (state, printed)
    assert ablation.verdict(kernels()[:3]).state == UNTESTED


def test_ablation_averages_over_widths_and_lengths() -> None:
    rows = kernels(**{ablation.FULL: 0.9})
    wide = [{**row, "config": {**row["config"], "d_model": 48}} for row in kernels(**{ablation.FULL: 0.7})]
    assert ablation.numbers([*rows, *wide])[0].ours == pytest.approx(0.2)  # of .3 and .1


@pytest.mark.parametrize("study", [length, ablation], ids=lambda study: study.CLAIM.name)
def test_every_budget_is_made_of_runs_that_can_be_built(study: ModuleType) -> None:
    sizes = [len({repr(config.to_dict()) for config in study.configs(budget)}) for budget in ("smoke", "long")]
    assert sizes == [len(study.configs(budget)) for budget in ("smoke", "long")]  # none twice
    assert sizes[0] < sizes[1]
    published = study.configs("paper")[-1]
    assert (published.vocab_size, published.pairs, published.n_heads, published.key_dim) == (8192, 32, 12, 16)
    assert published.head_dim == published.d_model // 12
