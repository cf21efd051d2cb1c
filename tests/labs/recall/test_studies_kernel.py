"""Studies of the kernel: every verdict from made-up rows, and the smoke runs from end to end."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.rebased import drift, floor, iou, rates, studies
from linnet.labs.core.claim import Setting
from linnet.labs.core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.kernels import KERNELS
from linnet.labs.recall.run import run

SEEDS = range(3)
JITTER = (-0.004, 0.0, 0.004)
Row = dict[str, Any]


def row(config: RecallConfig, accuracy: float, **metrics: Any) -> Row:
    about = {"accuracy": accuracy, "chosen_by": accuracy, "ending": "", **metrics}
    return {"config": config.to_dict(), "metrics": about}


def floors(grown: float, moved: float, accuracy: float = 0.7) -> list[Row]:
    """Two lengths; the weight elsewhere grows by `grown`, accuracy without the floor differs by `moved`."""
    return [
        row(
            floor.OURS.replace(seq_len=n, seed=seed),
            accuracy,
            floor=looked(0.5 + grown * (n == 128), accuracy, moved, seed),
        )
        for n in (32, 128)
        for seed in SEEDS
    ]


def looked(rest: float, accuracy: float, moved: float, seed: int) -> dict[str, Any]:
    about = {"rest": rest + JITTER[seed], "without": accuracy + moved + JITTER[seed]}
    return about | {"weight": 0.01, "floor": 0.1, "near": 0.2, "quantiles": [0.0] * 7, "histogram": []}


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (floors(0.2, 0.1), CONFIRMED),
        (floors(0.2, -0.1), CONFIRMED),
        (floors(0.2, 0.0), REFUTED),
        (floors(0.0, 0.1), REFUTED),
        (floors(0.2, 0.018), UNCLEAR),
        (floors(0.2, 0.1, accuracy=0.1), UNTESTED),
        (floors(0.2, 0.1)[:3], UNTESTED),
        (floors(0.2, 0.1)[:5], UNTESTED),
    ],
)
def test_floor(rows: list[Row], outcome: str) -> None:
    assert floor.verdict(rows).outcome == outcome


def test_a_run_that_diverged_is_no_seed_of_the_floor() -> None:
    rows = floors(0.2, 0.1)
    rows[-1]["metrics"]["floor"] |= {"rest": None, "quantiles": [None] * 7}
    assert floor.verdict(rows).outcome == UNTESTED
    assert len(floor.tables(rows)[0].rows) == 2


def drifts(
    gamma: float = 0.67, free: float = 1.0, gap: float = 0.0, std: float = 0.3, accuracy: float = 0.9
) -> list[Row]:
    """Decay alone leaves .67; gamma with decay and without, accuracy gained by decay, spread of beta."""
    rows = []
    for decay in (True, False):
        for seed in SEEDS:
            gains = {"gamma_mean": (gamma if decay else free) + JITTER[seed], "decay_alone": 0.67 if decay else 1.0}
            gains |= {"gamma_std": 0.2, "beta_mean": 0.01, "beta_std": std}
            config = drift.OURS.replace(decay_all=decay, seed=seed)
            rows.append(row(config, accuracy + gap * decay + JITTER[seed] * decay, gains=gains))
    return rows


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (drifts(), CONFIRMED),
        (drifts(gamma=1.0), REFUTED),
        (drifts(free=0.7), REFUTED),
        (drifts(gap=0.08), REFUTED),
        (drifts(std=0.02), UNCLEAR),
        (drifts(gamma=0.771), UNCLEAR),
        (drifts(accuracy=0.1), UNTESTED),
        (drifts()[:3], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_drift(rows: list[Row], outcome: str) -> None:
    assert drift.verdict(rows).outcome == outcome


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
    ("rows", "outcome"),
    [
        (by_rate(WIDE, MIDDLE, NARROW), CONFIRMED),
        (by_rate(MIDDLE, MIDDLE, NARROW), REFUTED),
        (by_rate(NARROW, WIDE, NARROW), REFUTED),
        (by_rate(WIDE, MIDDLE, MIDDLE), REFUTED),
        (by_rate(MIDDLE, (0.1, 1.0, 1.0), NARROW), UNCLEAR),  # no wider, but better outside the window
        (by_rate((0.96, 0.96, 0.96), (0.94, 1.0, 1.0), NARROW), UNCLEAR),  # wider, but worse inside it
        (by_rate(NARROW, NARROW, (0.1, 0.1, 0.1))[:9], UNTESTED),
        (by_rate((0.1, 0.1, 0.1), (0.1, 0.1, 0.1), (0.1, 0.1, 0.1)), UNTESTED),
        (by_rate(WIDE, MIDDLE, NARROW, seeds=range(2)), UNTESTED),
    ],
)
def test_rates(rows: list[Row], outcome: str) -> None:
    assert rates.verdict(rows).outcome == outcome


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
            look = {
                "p": 0.5,
                "iou": value + JITTER[seed] * (kernel == "rebased"),
                "hit": 0.9,
                "entropy": 1.0,
                "empty": 0.0,
            }
            config = iou.OURS.replace(mixer=kernel, stop_at=stop, seed=seed)
            rows.append(row(config, stop, ending=ending, iou={"mean": look, "heads": [look], "queries": 9}))
    return rows


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (seen(0.9, 0.3, 0.2), CONFIRMED),
        (seen(0.9, 0.3, 0.3), CONFIRMED),
        (seen(0.4, 0.3, 0.2), REFUTED),
        (seen(0.9, 0.2, 0.3), REFUTED),
        (seen(0.5, 0.3, 0.2), UNCLEAR),
        (seen(0.9, 0.3, 0.2, ending=""), UNTESTED),
        (seen(0.9, 0.3, 0.2, stop=0.8), UNTESTED),
        (seen(0.9, 0.3, 0.2)[:-1], UNTESTED),
    ],
)
def test_iou(rows: list[Row], outcome: str) -> None:
    assert iou.verdict(rows).outcome == outcome


def test_whether_rebased_is_apart_from_based_is_said() -> None:
    assert "ReBased is above Based" in iou.verdict(seen(0.9, 0.3, 0.2)).sentence
    assert "ReBased is not apart from Based" in iou.verdict(seen(0.9, 0.3, 0.3)).sentence


def test_correlation() -> None:
    assert iou.correlation([(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)]) == pytest.approx(1.0)
    assert iou.correlation([(0.1, 3.0), (0.2, 2.0), (0.3, 1.0)]) == pytest.approx(-1.0)
    assert iou.correlation([(0.1, 1.0), (0.2, 2.0)]) is None
    assert iou.correlation([(0.1, 1.0), (0.1, 2.0), (0.1, 3.0)]) is None


@pytest.mark.parametrize("name", ["floor", "drift", "rates", "iou"])
def test_smoke_runs_give_tables_and_a_verdict(name: str) -> None:
    study = studies()[name]
    configs = [unit.work for unit in study.units(Setting("smoke"))]
    assert {config.steps for config in configs} == {4}
    rows = [run(config) for config in configs]
    finding = study.read(rows)
    assert finding.outcome == UNTESTED  # one seed, nothing learned
    for table in finding.tables:
        assert table.rows or table.title.startswith("beside")
        assert all(len(line) == len(table.head) for line in table.rows)


@pytest.mark.parametrize("name", ["floor", "drift", "rates", "iou"])
@pytest.mark.parametrize("budget", ["long", "day", "paper"])
def test_every_budget_has_distinct_runs_with_seeds_in_pairs(name: str, budget: str) -> None:
    configs = [unit.work for unit in studies()[name].units(Setting(budget))]
    assert len({str(config.to_dict()) for config in configs}) == len(configs)
    assert len({config.seed for config in configs}) >= 3
