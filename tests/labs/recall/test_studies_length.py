"""C2 length and C3 ablation: what their rules make of rows, and that every budget can be built."""

from __future__ import annotations

from types import ModuleType

import pytest

from linnet.labs.claims.rebased import ablation, length
from linnet.labs.core.results import Row
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.kernels import KERNELS
from tests.labs.recall.made_up import around, made_up


def lengths(based: float, rebased: float, short: float = 0.9, seeds: int = 3) -> list[Row]:
    """Two fillers, two widths; Based and ReBased drop by so much from 32 to 128 tokens, a little different by seed."""
    rows = []
    for filler in ("zero", "random"):
        for width in (16, 24):
            for mixer, drop in (("based", based), ("rebased", rebased)):
                base = length.BASE.replace(mixer=mixer, filler=filler, d_model=width)
                rows += made_up(base, [short] * seeds)
                rows += made_up(base.replace(seq_len=128), [short - drop + 0.01 * seed for seed in range(seeds)])
    return rows


@pytest.mark.parametrize(
    ("based", "rebased", "outcome"),
    [(0.3, 0.1, "confirmed"), (0.1, 0.1, "refuted"), (0.1, 0.3, "refuted"), (0.17, 0.12, "confirmed")],
)
def test_length_compares_what_is_lost(based: float, rebased: float, outcome: str) -> None:
    result = length.verdict(lengths(based, rebased))
    assert result.outcome == outcome, result.sentence
    assert "from 32 to 128 tokens" in result.sentence


def test_length_says_nothing_of_models_that_learned_nothing_or_of_too_few_seeds() -> None:
    assert length.verdict(lengths(0.1, 0.0, short=0.2)).outcome == "not testable"
    few = length.verdict(lengths(0.3, 0.1, seeds=2))
    assert few.outcome == "not testable"
    assert "2 seeds, and the rule wants 3" in few.sentence


def test_length_is_unclear_when_only_one_place_shows_it() -> None:
    rows = lengths(0.1, 0.1)
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        where = (config.filler, config.d_model, config.mixer, config.seq_len)
        if where == ("zero", 16, "based", 128):
            row["metrics"]["accuracy"] -= 0.2
    assert length.verdict(rows).outcome == "unclear"


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


def test_ablation_is_about_rebased_and_its_plain_square() -> None:
    ahead = ablation.verdict(kernels(**{ablation.FULL: 0.9, "zero-floor": 0.9}))
    assert ahead.outcome == "confirmed"
    assert "the floor is the cause" in ahead.sentence
    alone = ablation.verdict(kernels(**{ablation.FULL: 0.9}))
    assert alone.outcome == "confirmed"
    assert "the floor is the cause" not in alone.sentence
    assert ablation.verdict(kernels()).outcome == "refuted"
    assert ablation.verdict(kernels()[:3]).outcome == "not testable"


@pytest.mark.parametrize("study", [length, ablation], ids=lambda study: study.CLAIM.name)
def test_every_budget_is_made_of_runs_that_can_be_built(study: ModuleType) -> None:
    sizes = [len({repr(config.to_dict()) for config in study.configs(budget)}) for budget in ("smoke", "long", "day")]
    assert sizes == [len(study.configs(budget)) for budget in ("smoke", "long", "day")]  # none twice
    assert sizes[0] < sizes[1] < sizes[2]
    published = study.configs("paper")[-1]
    assert (published.vocab_size, published.pairs, published.n_heads, published.key_dim) == (8192, 32, 12, 16)
    assert published.head_dim == published.d_model // 12
