"""C6: is ReBased easier to train: does it do well at more learning rates than Based, and Based at more than x^2?

    window      log10(highest / lowest) of neighbouring rates with a mean accuracy of 0.95 or more
    EVP(n)      expected accuracy of the best of n rates picked at random (Dodge et al. 2019, arXiv:1909.03004)

Figure 7 of Aksenov et al. 2024 (arXiv:2402.10644) draws EVP for 1 to 4 rates: ReBased higher and flatter at every
width, and at large widths right at every rate and seed where Based is not. No number is printed. Their table 1 has a
standard deviation over seeds of .42 for x^2, which is a kernel that often does not train rather than one that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan

from ...core.claim import Number, spread
from ...core.intervals import Interval, expected_best, interval, paired, window
from ...core.results import Row
from ...core.verdicts import CONFIRMED, FEWEST, REFUTED, UNCLEAR, UNTESTED, Table, Verdict, shown
from ...recall.cells import Charts, by_cell, line_chart, point
from ...recall.config import RecallConfig
from ...recall.kernels import KERNELS
from ...recall.study import SMALL, recall_claim
from ...recall.sweep import IN_WINDOW
from .ablation import FULL, PLAIN, name_of
from .length import PAPER

ORDER = (FULL, "based", PLAIN)  # from the least sensitive, as claimed
DRAWS = (1, 2, 3, 4)
ENOUGH = 0.02  # of EVP(1), the mean over rates
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
    widths, seeds = ((64,), 3) if budget in ("hour", "long") else ((32, 64, 128), 5)
    return kernel_grid(OURS, widths, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), seeds)


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
    clauses, outcomes = [], []
    for width in sorted({width for width, _ in by_kernel}):
        once = [expected(by_kernel.get((width, kernel), {}), 1) for kernel in ORDER]
        if min(map(len, once)) < FEWEST:
            return Verdict(UNTESTED, f"{FEWEST} seeds of every kernel at every rate are wanted at d={width}")
        windows = [width_of_window(by_kernel[width, kernel]) for kernel in ORDER]
        if any(one is not None for one in windows):  # skip widths that no kernel solves
            gaps = [paired(once[0], once[1]), paired(once[1], once[2])]
            outcomes.append(outcome([-1.0 if one is None else one for one in windows], gaps))
            drawn = ", ".join(f"{kernel} {decades(one)}" for kernel, one in zip(ORDER, windows, strict=True))
            clauses.append(f"d={width}: windows {drawn}; EVP(1) ReBased - Based {gaps[0]}, Based - x^2 {gaps[1]}")
    if not clauses:
        return Verdict(UNTESTED, f"no kernel reaches {IN_WINDOW} at any rate")
    agreed = outcomes[0] if len(set(outcomes)) == 1 else UNCLEAR
    return Verdict(agreed, "; ".join(clauses))


def outcome(windows: Sequence[float], gaps: Sequence[Interval]) -> str:
    """Return the outcome at one width: windows of ReBased, Based, x^2 (-1 for none), and the two EVP(1) gaps."""
    wider = [wide > narrow for wide, narrow in pairwise(windows)]
    if all(wider) and all(gap.low > 0 for gap in gaps):
        return CONFIRMED
    if any(not wide and gap.high < ENOUGH for wide, gap in zip(wider, gaps, strict=True)):
        return REFUTED
    return UNCLEAR


def decades(window: float | None) -> str:
    return "none" if window is None else f"{window:.1f}"


def tables(rows: Sequence[Row]) -> list[Table]:
    by_kernel = dict(sorted(curves(rows).items()))
    rates = sorted({rate for by_rate in by_kernel.values() for rate in by_rate})
    accuracies, best = [], []
    for (width, kernel), by_rate in by_kernel.items():
        about = (str(width), kernel)
        means = [str(interval(list(by_rate[rate].values()))) if rate in by_rate else "" for rate in rates]
        accuracies.append((*about, *means, decades(width_of_window(by_rate))))
        evp = [expected(by_rate, draws) if draws <= len(by_rate) else {} for draws in DRAWS]
        best.append((*about, *(str(interval(list(one.values()))) if one else "" for one in evp)))
    return [
        Table(("d", "kernel", *map(shown, rates), "window, decades"), accuracies, "accuracy by learning rate"),
        Table(("d", "kernel", *(f"{n} drawn" for n in DRAWS)), best, "accuracy to expect of the best of n rates"),
    ]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the numbers of the widest model."""
    by_kernel = curves(rows)
    width = max(width for width, _ in by_kernel)
    once = {kernel: expected(by_kernel[width, kernel], 1) for kernel in ORDER}
    windows = {kernel: width_of_window(by_kernel[width, kernel]) for kernel in ORDER}
    full, based, plain = ORDER
    return [
        spread("recall of ReBased less Based, mean over learning rates", None, paired(once[full], once[based])),
        spread("recall of Based less x^2, mean over learning rates", None, paired(once[based], once[plain])),
        *(
            Number(f"decades of learning rates with a recall of .95: {name}", None, nan if one is None else one)
            for name, one in zip(("ReBased", "Based", "x^2"), windows.values(), strict=True)
        ),
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
    question="Is ReBased less picky about the learning rate than Based, and Based less than a plain square?",
    statement="The paper's figure draws ReBased higher and flatter over learning rates at every width. It prints no "
    "number.",
    rule=f"confirmed if the window of rates at {IN_WINDOW} is wider for ReBased than for Based and for Based than for "
    "x^2, and so is EVP(1) higher with intervals above 0; refuted if one of the two is no wider and its gain in EVP(1) "
    f"is below {ENOUGH}; at every width where any kernel has a window"
    ". Sizes of the quick budget: keys are of width 4, with which Based and ReBased do not reach .95 in the mean at "
    "any rate, so their windows say little",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "If there is no time to tune, ReBased is the kernel most likely to train.",
        REFUTED: "ReBased is no less picky than the next one: tune the learning rate for every kernel before "
        "comparing.",
        UNCLEAR: "The window of good rates is not clearly wider for one of them: tune the learning rate for every "
        "kernel.",
    },
)
