"""C6: averaged over learning rates, does ReBased recall more than Based?

    EVP(n)      expected accuracy of the best of n rates picked at random (Dodge et al. 2019, arXiv:1909.03004);
                EVP(1), the mean over rates, is what the rule judges
    window      log10(highest / lowest) of neighbouring rates with a mean accuracy of 0.95 or more: shown, not judged

Figure 7 of Aksenov et al. 2024 (arXiv:2402.10644) draws EVP for 1 to 4 rates: ReBased higher and flatter at every
width, and at large widths right at every rate and seed where Based is not. No number is printed. Their table 1 has a
standard deviation over seeds of .42 for x^2, which is a kernel that often does not train rather than one that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import Interval, expected_best, interval, paired, share_interval, window
from ...core.licence import learned, room
from ...core.results import Row
from ...core.verdicts import FEWEST, NO, OPEN, UNTESTED, YES, Table, Verdict, shown
from ...recall import bench
from ...recall.cells import Charts, by_cell, line_chart, point
from ...recall.config import RecallConfig
from ...recall.kernels import KERNELS
from ...recall.study import SMALL, deciding, everywhere, judged, recall_claim
from ...recall.sweep import IN_WINDOW
from .ablation import FULL, PLAIN, name_of
from .length import PAPER

ORDER = (FULL, "based", PLAIN)
DRAWS = (1, 2, 3, 4)
OURS = RecallConfig(key_dim=8)
Curves = dict[tuple[int, str], dict[float, dict[int, float]]]  # (width, kernel) -> rate -> seed -> accuracy


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return kernel_grid(OURS.replace(steps=4, d_model=16, seq_len=32, pairs=8), (16,), (1e-3, 1e-2), 1)
    if budget == "quick":
        return kernel_grid(SMALL.replace(key_dim=4), (32,), (3e-3, 1e-2, 3e-2), 3)
    if budget == "paper":
        chosen = kernel_grid(PAPER, (16, 24, 32, 48), (5e-4, 1e-3, 3e-3, 1e-2), 5)
        return [config.replace(head_dim=config.d_model // 12) for config in chosen]
    return kernel_grid(OURS, (64,), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), 3)


def kernel_grid(base: RecallConfig, widths: Sequence[int], rates: Sequence[float], seeds: int) -> list[RecallConfig]:
    return [
        base.replace(mixer=mixer, options=options, d_model=width, lr=rate, seed=seed)
        for mixer, options in (KERNELS[kernel] for kernel in ORDER)
        for width in widths
        for rate in rates
        for seed in range(seeds)
    ]


def curves(rows: Sequence[Row]) -> Curves:
    """Return the accuracy of every rate and seed, not only of the best rate."""
    by_kernel: Curves = {}
    for (width, kernel, rate), seeds in by_cell(rows, lambda c: (c.d_model, name_of(c), c.lr)).items():
        by_kernel.setdefault((width, kernel), {})[rate] = seeds
    return by_kernel


def width_of_window(rates: dict[float, dict[int, float]]) -> float | None:
    return window({rate: interval(list(seeds.values())).mean for rate, seeds in rates.items()}, IN_WINDOW)


def expected(rates: dict[float, dict[int, float]], draws: int) -> dict[int, float]:
    """Return the EVP of every seed that ran at all rates."""
    common = set.intersection(*(set(seeds) for seeds in rates.values())) if rates else set()
    return {seed: expected_best([seeds[seed] for seeds in rates.values()], draws) for seed in sorted(common)}


def verdict(rows: Sequence[Row]) -> Verdict:
    by_kernel = curves(rows)
    for width in sorted({width for width, _ in by_kernel}):
        once = [expected(by_kernel.get((width, kernel), {}), 1) for kernel in ORDER]
        if min(map(len, once)) < FEWEST:
            return Verdict(UNTESTED, f"{FEWEST} seeds of every kernel at every rate are needed at d = {width}")
    gaps = leads(by_kernel)
    best = {width: max(map(_mean, by_kernel[width, "based"].values())) for width in gaps}
    average = {f"Based at width {width}": _mean(expected(by_kernel[width, "based"], 1)) for width in gaps}
    controls = [
        learned("Based", min(best.values()), IN_WINDOW, "recall at its best rate"),
        room(average, what="recall averaged over rates"),
    ]
    clauses = [f"d = {width}: ReBased less Based {gap}" for width, gap in gaps.items()]
    sentence = "recall averaged over learning rates, " + "; ".join(clauses)
    return judged(state_of(gaps), sentence, rows, bench.TABLE_1, min(gap.seeds for gap in gaps.values()), controls)


def state_of(gaps: dict[int, Interval]) -> str:
    return everywhere([YES if gap.low > 0 else NO if gap.high < 0 else OPEN for gap in gaps.values()])


def leads(by_kernel: Curves) -> dict[int, Interval]:
    """Return width -> EVP(1) of ReBased less that of Based."""
    widths = sorted({width for width, _ in by_kernel})
    once = {one: expected(rates, 1) for one, rates in by_kernel.items()}
    return {width: paired(once[width, FULL], once[width, "based"]) for width in widths}


def _mean(seeds: dict[int, float]) -> float:
    return interval(list(seeds.values())).mean


def decades(window: float | None) -> str:
    return "none" if window is None else f"{window:.1f}"


def tables(rows: Sequence[Row]) -> list[Table]:
    by_kernel = dict(sorted(curves(rows).items()))
    rates = sorted({rate for by_rate in by_kernel.values() for rate in by_rate})
    accuracies, best = [], []
    for (width, kernel), by_rate in by_kernel.items():
        about = (str(width), kernel)
        means = [str(share_interval(list(by_rate[rate].values()))) if rate in by_rate else "" for rate in rates]
        accuracies.append((*about, *means, decades(width_of_window(by_rate))))
        evp = [expected(by_rate, draws) if draws <= len(by_rate) else {} for draws in DRAWS]
        best.append((*about, *(str(share_interval(list(one.values()))) if one else "" for one in evp)))
    return [
        Table(("d", "kernel", *map(shown, rates), "window, decades"), accuracies, "accuracy by learning rate"),
        Table(("d", "kernel", *(f"{n} drawn" for n in DRAWS)), best, "accuracy to expect of the best of n rates"),
    ]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the lead that decides, and the numbers of the widest model."""
    by_kernel = curves(rows)
    gaps = leads(by_kernel)
    decisive, width = deciding(state_of(gaps), gaps), max(gaps)
    once = {kernel: expected(by_kernel[width, kernel], 1) for kernel in ORDER}
    return [
        spread(f"recall of ReBased less Based, mean over learning rates, d {decisive}", None, gaps[decisive]),
        spread("recall of Based less x^2, mean over learning rates", None, paired(once["based"], once[PLAIN])),
    ]


def charts(rows: Sequence[Row]) -> Charts:
    series = {
        f"{kernel}, d {width}" if kernel != "based" else f"Based, d {width}": [
            point(rate, seeds) for rate, seeds in by_rate.items()
        ]
        for (width, kernel), by_rate in curves(rows).items()
    }
    return line_chart("recall by learning rate", "learning rate", series)


CLAIM = recall_claim(
    name="rates",
    number="C6",
    statement="Averaged over learning rates, ReBased looks up more pairs than Based.",
    source="The paper's figure draws ReBased higher and flatter over learning rates at every width. It prints no "
    "number.",
    rule="yes if at every width the recall averaged over learning rates, EVP(1), is higher for ReBased than for Based "
    f"with an interval above 0; no if at every width it lies below 0. Controls: Based has {IN_WINDOW} "
    f"or more at its best rate, and less than .99 averaged over rates. Regime: {bench.TABLE_1.words}. Sizes of the "
    f"quick budget: keys are of width 4, with which Based does not reach {IN_WINDOW} at any rate",
    answers={YES: "Yes, ReBased is ahead", NO: "No, Based is ahead"},
    change="Five seeds on the paper's grid of rates, 0.0005 to 0.01, in which Based averages more.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "If there is no time to tune, ReBased is more likely to train than Based. Tune the learning rate before "
        "comparing what kernels can hold.",
        NO: "ReBased is no less picky than Based: tune the learning rate for every kernel before comparing.",
        OPEN: "Neither is clearly better over these rates: tune the learning rate for every kernel.",
    },
)
