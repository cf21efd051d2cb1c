"""Studies of the kernel: what their rules find in made-up rows, and the smoke runs from end to end."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.rebased import drift, floor, iou, rates, studies
from linnet.labs.core.claim import Setting
from linnet.labs.core.verdicts import NO, OPEN, UNTESTED, YES
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.kernels import KERNELS
from linnet.labs.recall.run import run
from tests.labs.recall.made_up import CURVE, outcome

SEEDS = range(3)
JITTER = (-0.004, 0.0, 0.004)
Row = dict[str, Any]


def row(config: RecallConfig, accuracy: float, **metrics: Any) -> Row:
    about = {"accuracy": accuracy, "chosen_by": accuracy, "ending": "", "curve": CURVE, **metrics}
    return {"config": config.to_dict(), "metrics": about}


def floors(moved: float, accuracy: float = 0.7, filler: str = "zero") -> list[Row]:
    """Two lengths; accuracy without the floor differs by `moved`."""
    return [
        row(floor.OURS.replace(seq_len=n, seed=seed, filler=filler), accuracy, floor=looked(accuracy, moved, seed))
        for n in (32, 128)
        for seed in SEEDS
    ]


def looked(accuracy: float, moved: float, seed: int) -> dict[str, Any]:
    about = {"rest": 0.5 + JITTER[seed], "without": accuracy + moved + JITTER[seed]}
    return about | {"weight": 0.01, "floor": 0.1, "near": 0.2, "quantiles": [0.0] * 7, "histogram": []}


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (floors(0.1), YES),
        (floors(-0.1), YES),
        (floors(0.0), NO),
        (floors(0.004), NO),  # a change, and not a clear one
        (floors(0.018), OPEN),
        (floors(0.1)[:3], UNTESTED),
        (floors(0.1)[:5], UNTESTED),
        (floors(0.1) + floors(0.0, filler="random"), OPEN),
        (floors(0.0, 0.985) + floors(-0.1, filler="random"), YES),  # the first has no room to gain by .02
        (floors(0.0, 0.1) + floors(-0.1, filler="random"), YES),  # the first has not learned
    ],
)
def test_floor(rows: list[Row], state: str) -> None:
    assert floor.verdict(rows).state == state


def test_the_floor_that_decides_is_shown_first() -> None:
    rows = floors(0.0, 0.985) + floors(-0.1, filler="random")
    assert [number.what.split(", ")[2:] for number in floor.numbers(rows)] == [["random filler", "d 24"]] * 2
    both = floors(0.1) + floors(-0.05, filler="random")
    assert [round(number.ours, 6) for number in floor.numbers(both)[:2]] == [-0.05, 0.1]
    neither = floors(0.0) + floors(0.004, filler="random")
    assert [round(number.ours, 6) for number in floor.numbers(neither)[:2]] == [0.004, 0.0]


def test_a_run_that_diverged_is_no_seed_of_the_floor() -> None:
    rows = floors(0.1)
    rows[-1]["metrics"]["floor"] |= {"rest": None, "quantiles": [None] * 7}
    assert floor.verdict(rows).state == UNTESTED
    assert len(floor.tables(rows)[0].rows) == 2


def drifts(gamma: float = 0.67, free: float = 1.0, accuracy: float = 0.9) -> list[Row]:
    """Decay alone leaves .67; gamma with decay and without."""
    rows = []
    for decay in (True, False):
        for seed in SEEDS:
            gains = {"gamma_mean": (gamma if decay else free) + JITTER[seed], "decay_alone": 0.67 if decay else 1.0}
            gains |= {"gamma_std": 0.2, "beta_mean": 0.01, "beta_std": 0.3}
            rows.append(row(drift.OURS.replace(decay_all=decay, seed=seed), accuracy, gains=gains))
    return rows


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (drifts(), YES),
        (drifts(gamma=1.0), NO),
        (drifts(free=0.7), NO),
        (drifts(gamma=0.771), OPEN),
        (drifts()[:5], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_drift(rows: list[Row], state: str) -> None:
    assert drift.verdict(rows).state == state


def test_the_setting_whose_gamma_decides_is_shown_first() -> None:
    assert drift.numbers(drifts(gamma=0.7, free=0.6))[0].ours == pytest.approx(-0.4)
    assert "without decay" in drift.numbers(drifts(gamma=0.7, free=0.6))[0].what


GRID = (1e-3, 1e-2, 1e-1)
WIDE, MIDDLE, NARROW = (1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (0.1, 1.0, 0.1)


def by_rate(*kernels: tuple[float, ...], seeds: range = SEEDS) -> list[Row]:
    """Accuracy of ReBased, Based and x^2 at each rate."""
    return [
        row(
            rates.OURS.replace(mixer=KERNELS[name][0], options=KERNELS[name][1], lr=lr, seed=seed), value - 0.001 * seed
        )
        for name, values in zip(rates.ORDER, kernels, strict=True)
        for lr, value in zip(GRID, values, strict=True)
        for seed in seeds
    ]


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (by_rate(WIDE, MIDDLE, NARROW), YES),
        (by_rate(WIDE, (0.99, 1.0, 1.0), NARROW), YES),  # by a third of a hundredth: ahead is ahead
        (by_rate(NARROW, MIDDLE, NARROW), NO),
        (by_rate(MIDDLE, MIDDLE, NARROW), OPEN),  # level
        (by_rate(NARROW, NARROW, (0.1, 0.1, 0.1))[:9], UNTESTED),
        (by_rate(WIDE, MIDDLE, NARROW, seeds=range(2)), UNTESTED),
    ],
)
def test_rates(rows: list[Row], state: str) -> None:
    assert rates.verdict(rows).state == state


def test_expected_best_and_window_in_the_tables() -> None:
    accuracy, best = rates.tables(by_rate(WIDE, MIDDLE, NARROW, seeds=range(1)))
    assert {line[1]: line[-1] for line in accuracy.rows} == {rates.FULL: "2.0", "based": "1.0", "x^2": "0.0"}
    narrow = next(line for line in best.rows if line[1] == "x^2")
    assert [cell[:5] for cell in narrow[2:]] == ["0.400", "0.700", "1.000", ""]  # 1 of 3, 2 of 3, all, and no more


def seen(softmax: float, rebased: float, based: float, ending: str = "stopped", stop: float = iou.LEVEL) -> list[Row]:
    """IoU of the three kernels, in runs that got as far as `stop`, or did not."""
    rows = []
    for kernel, value in zip(iou.KERNELS, (softmax, rebased, based), strict=True):
        for seed in SEEDS:
            look = {"p": 0.5, "hit": 0.9, "entropy": 1.0, "empty": 0.0}
            look["iou"] = value + JITTER[seed] * (kernel == "rebased")
            config = iou.OURS.replace(mixer=kernel, stop_at=stop, seed=seed)
            rows.append(row(config, stop, ending=ending, iou={"mean": look, "heads": [look], "queries": 9}))
    return rows


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        (seen(0.9, 0.3, 0.2), YES),
        (seen(0.4, 0.3, 0.2), YES),  # whatever softmax does
        (seen(0.9, 0.3, 0.3), OPEN),  # not behind is not ahead
        (seen(0.9, 0.2, 0.3), NO),
        (seen(0.9, 0.3, 0.2, ending=""), UNTESTED),
        (seen(0.9, 0.3, 0.2, stop=0.8), UNTESTED),
        (seen(0.9, 0.3, 0.2)[:-1], UNTESTED),
    ],
)
def test_iou(rows: list[Row], state: str) -> None:
    assert iou.verdict(rows).state == state


def test_kernels_that_recall_differently_are_not_compared() -> None:
    rows = seen(0.9, 0.3, 0.2)
    for one in rows:
        one["metrics"]["accuracy"] += 0.03 * (one["config"]["mixer"] == "based")
    assert outcome(iou.verdict(rows)) == (UNTESTED, "the recalls differ")


def test_correlation() -> None:
    assert iou.correlation([(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)]) == pytest.approx(1.0)
    assert iou.correlation([(0.1, 3.0), (0.2, 2.0), (0.3, 1.0)]) == pytest.approx(-1.0)
    assert iou.correlation([(0.1, 1.0), (0.2, 2.0)]) is None
    assert iou.correlation([(0.1, 1.0), (0.1, 2.0), (0.1, 3.0)]) is None


@pytest.mark.parametrize("name", ["floor", "drift", "rates", "iou"])
def test_smoke_runs_give_tables_and_no_outcome(name: str) -> None:
    study = studies()[name]
    configs = [unit.work for unit in study.units(Setting("smoke"))]
    assert {config.steps for config in configs} == {4}
    rows = [run(config) for config in configs]
    finding = study.read(rows)
    assert finding.outcome == UNTESTED  # one seed, nothing learned
    for table in finding.tables:
        assert table.rows or table.title.startswith("next to")
        assert all(len(line) == len(table.head) for line in table.rows)


@pytest.mark.parametrize("name", ["floor", "drift", "rates", "iou"])
@pytest.mark.parametrize("budget", ["long", "paper"])
def test_every_budget_has_distinct_runs_with_seeds_in_pairs(name: str, budget: str) -> None:
    configs = [unit.work for unit in studies()[name].units(Setting(budget))]
    assert len({str(config.to_dict()) for config in configs}) == len(configs)
    assert len({config.seed for config in configs}) >= 3
