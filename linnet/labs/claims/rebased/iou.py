"""C9: at equal accuracy, is more of a query's attention on the requested value in ReBased than in Based?

    p = weight on that value, of the weight on the context        IoU = p / (2 - p)        (recall/iou.py)

Section 5 of Aksenov et al. 2024 (arXiv:2402.10644), N = 128, 32 pairs: softmax .999, Based .157, ReBased .173 at
accuracies 1, .956 and .957; formula and error bars are not given, and the two differ by .016 only. The first layer is
fixed to the previous token, so that there is one right place to attend to. Runs end once they are good enough: those
that end at 0.95 are compared, the others only show how IoU relates to accuracy. Softmax is shown, and not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...core.claim import Heat, Number, spread
from ...core.intervals import interval, paired, share_interval
from ...core.licence import Control
from ...core.results import Row
from ...core.verdicts import FEWEST, NO, OPEN, UNTESTED, YES, Table, Verdict
from ...recall import bench, day
from ...recall.cells import NAMES, Charts, Point, bar_chart, grid, point
from ...recall.cells import recall as share_of
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.study import SMALL, judged, recall_claim
from .length import PAPER

KERNELS = ("softmax", "rebased", "based")
STOPS = (0.5, 0.8, 0.95)
LEVEL = STOPS[-1]  # the accuracy at which kernels are compared
EQUAL = 0.02  # largest difference of two recalls that count as equal
OURS = RecallConfig(first="shift", key_dim=8, probes=("iou",))
Runs = dict[tuple[str, float], dict[int, dict[str, Any]]]  # (kernel, accuracy to stop at) -> seed -> metrics
SECTION_5 = {"softmax": (0.999, 1.0), "rebased": (0.173, 0.957), "based": (0.157, 0.956)}  # IoU and accuracy, there


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(OURS.replace(steps=4, stop_at=LEVEL, seq_len=32, pairs=8, d_model=16), mixer=KERNELS)
    if budget == "quick":
        base = SMALL.replace(first="shift", steps=400, stop_at=LEVEL, probes=("iou",))
        return [
            config.replace(key_dim=None if config.mixer == "softmax" else 8)
            for config in grid(base, mixer=KERNELS, seed=range(6))
        ]
    if budget == "paper":
        base = PAPER.replace(first="shift", probes=("iou",), seq_len=128, d_model=64, head_dim=5, lr=3e-3)
        one = base.replace(mixer="softmax", n_heads=1, key_dim=None, head_dim=None)
        both = [one, *grid(base, mixer=KERNELS[1:])]
        return [config for kernel in both for config in grid(kernel, stop_at=STOPS, seed=range(5))]
    chosen = grid(OURS, mixer=KERNELS, stop_at=STOPS, seed=range(3))
    return [config.replace(key_dim=None) if config.mixer == "softmax" else config for config in chosen]


@cache
def stages() -> list[Stage]:
    """Return the day runs: section 5 but for positions and dropout, without which every model here goes."""
    base = day.DAY.replace(first="shift", stop_at=LEVEL, probes=("iou",))
    heads = [base.replace(mixer=kernel, n_heads=12, key_dim=16, head_dim=5) for kernel in KERNELS[1:]]
    return [Stage([base.replace(mixer="softmax"), *heads], seeds=8)]


def runs(rows: Sequence[Row]) -> Runs:
    """Return every run of the study; they all stop when they are good enough, so `by_cell` would skip them."""
    by_kernel: Runs = defaultdict(dict)
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        by_kernel[config.mixer, config.stop_at][config.seed] = row["metrics"]
    return dict(by_kernel)


def looks(by_seed: dict[int, dict[str, Any]], name: str) -> dict[int, float]:
    """Return a metric of the mean over heads, for the seeds that reached their target."""
    values = {seed: m["iou"]["mean"][name] for seed, m in by_seed.items() if m["ending"] == "stopped"}
    return {seed: value for seed, value in values.items() if value is not None}


def verdict(rows: Sequence[Row]) -> Verdict:
    every = runs(rows)
    iou = {kernel: looks(every.get((kernel, LEVEL), {}), "iou") for kernel in KERNELS}
    common = set.intersection(*(set(seeds) for seeds in iou.values()))
    if len(common) < FEWEST:
        return Verdict(
            UNTESTED, f"all kernels reach a recall of {LEVEL} with {len(common)} seeds, and the rule needs {FEWEST}"
        )
    order = paired(iou["rebased"], iou["based"])
    recall = {
        kernel: interval([every[kernel, LEVEL][seed]["accuracy"] for seed in common]).mean
        for kernel in ("rebased", "based")
    }
    gap = abs(recall["rebased"] - recall["based"])
    detail = f"the recalls of ReBased and Based differ by {gap:.3f}; {EQUAL:g} is accepted"
    equal = Control("the kernels recall equally", gap <= EQUAL, detail, "the recalls differ")
    sentence = f"IoU at a recall of {LEVEL}: ReBased less Based {order}, softmax less ReBased "
    sentence += str(paired(iou["softmax"], iou["rebased"]))
    state = YES if order.low > 0 else NO if order.high < 0 else OPEN
    judged_rows = [row for row in rows if row["config"]["mixer"] in recall]  # softmax has one head in the paper
    return judged(state, sentence, judged_rows, bench.SECTION_5, order.seeds, [equal])


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation of three pairs or more that are not constant, else None."""
    x = np.asarray(pairs, dtype=np.float64)
    if len(x) < 3 or bool((x.std(0) < 1e-12).any()):
        return None
    return float(np.corrcoef(x.T)[0, 1])


def tables(rows: Sequence[Row]) -> list[Table]:
    ordered = dict(sorted(runs(rows).items(), key=lambda item: (KERNELS.index(item[0][0]), item[0][1])))
    lines = [(kernel, f"{stop:g}", *_line(seeds)) for (kernel, stop), seeds in ordered.items()]
    head = ("kernel", "ends at", "got there", "accuracy", "p", "IoU", "best head", "top 1", "entropy")
    together = []
    for kernel in dict.fromkeys(kernel for kernel, _ in ordered):
        pairs = [
            (m["iou"]["mean"]["iou"], m["accuracy"]) for (k, _), s in ordered.items() if k == kernel for m in s.values()
        ]
        r = correlation([pair for pair in pairs if None not in pair])
        together.append((kernel, "" if r is None else f"{r:.2f}", str(len(pairs))))
    return [
        Table(head, lines, "where a query looks: weights over the context, mean over heads"),
        Table(("kernel", "correlation", "runs"), together, "IoU and accuracy over runs"),
    ]


def _line(seeds: dict[int, dict[str, Any]]) -> tuple[str, ...]:
    """Return a line for all runs of a kernel, including those that did not reach the target."""
    every = list(seeds.values())
    values = {name: [m["iou"]["mean"][name] for m in every] for name in ("p", "iou", "hit", "entropy")}
    values["accuracy"] = [m["accuracy"] for m in every]
    values["best"] = [max((h["iou"] for h in m["iou"]["heads"] if h["iou"] is not None), default=None) for m in every]
    shown = {name: [value for value in of if value is not None] for name, of in values.items()}
    order = ("accuracy", "p", "iou", "best", "hit", "entropy")
    spread_of = {name: interval if name == "entropy" else share_interval for name in order}
    reached = sum(m["ending"] == "stopped" for m in every)
    return (f"{reached} of {len(every)}", *(str(spread_of[n](shown[n])) if shown[n] else "" for n in order))


def maps(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the weights of the first seed with which every kernel reached LEVEL, on its first test sequence."""
    got = {kernel: runs(rows).get((kernel, LEVEL), {}) for kernel in KERNELS}
    ended = {k: {s: m["iou"] for s, m in seeds.items() if m["ending"] == "stopped"} for k, seeds in got.items()}
    common = sorted(set.intersection(*(set(seeds) for seeds in ended.values())))
    if not common:
        return []
    looks = {kernel: seeds[common[0]] for kernel, seeds in ended.items()}
    shown = {f"{kernel}, IoU {one['mean']['iou']:.2f}": one["example"]["weights"] for kernel, one in looks.items()}
    caption = (
        "A row for each question in the order asked, a column for each token of the context; a ring is the answer."
    )
    return [{"caption": caption, "maps": shown, "targets": looks[KERNELS[0]]["example"]["targets"]}]


def numbers(rows: Sequence[Row]) -> list[Number]:
    every = runs(rows)
    seen = {kernel: looks(every[kernel, LEVEL], "iou") for kernel in KERNELS}
    softmax, rebased, based = seen.values()
    return [
        spread("IoU of ReBased's attention less that of Based, at equal recall", ".016", paired(rebased, based)),
        spread("IoU of softmax less that of ReBased, at equal recall", ".826", paired(softmax, rebased)),
        *(share_of(f"IoU of {NAMES[k]}'s attention", seeds, f"{SECTION_5[k][0]:g}") for k, seeds in seen.items()),
    ]


def charts(rows: Sequence[Row]) -> Charts:
    """Draw IoU with the paper's, and the attention of softmax and ReBased in one sequence."""
    every = runs(rows)
    here = {kernel: looks(every.get((kernel, LEVEL), {}), "iou") for kernel in KERNELS}
    series: dict[str, list[Point]] = {"here": [point(NAMES[k], seeds) for k, seeds in here.items() if seeds]}
    series["paper"] = [(NAMES[k], SECTION_5[k][0]) for k, seeds in here.items() if seeds]
    drawn_bars = bar_chart("attention on the requested value", "kernel", "IoU", series) if series["here"] else []
    heats = [heat(title, weights) for drawn in maps(rows) for title, weights in drawn["maps"].items()]
    return [*drawn_bars, *heats[:2]]


def heat(title: str, weights: Sequence[Sequence[float]]) -> Heat:
    """Draw a row for each query in order, a column for each token of the context."""
    asked = [str(row + 1) for row in range(len(weights))]
    read = [str(column + 1) for column in range(len(weights[0]))]
    caption = "a row for each question in the order asked, a column for each token of the pairs"
    return Heat(f"where the queries look: {title}", asked, read, weights, caption)


def compare_section_5(rows: Sequence[Row]) -> list[Table]:
    """Return IoU and recall with the paper's, for the runs that stopped at LEVEL."""
    lines = []
    for kernel in KERNELS:
        of = runs(rows).get((kernel, LEVEL), {})
        seen = looks(of, "iou")
        if seen:
            recall = interval([of[seed]["accuracy"] for seed in seen])
            paper = (f"{value:g}" for value in SECTION_5[kernel])
            lines.append((NAMES[kernel], str(share_interval(list(seen.values()))), str(recall), *paper))
    return [Table(("kernel", "IoU here", "recall here", "paper's IoU", "paper's recall"), lines, "next to section 5")]


CLAIM = recall_claim(
    name="iou",
    number="C9",
    statement="At equal recall, more of ReBased's attention than of Based's is on the right value.",
    source="The paper prints an overlap (IoU) of .999 for softmax, .173 for ReBased and .157 for Based at recalls of "
    "1, .957 and .956, without error bars.",
    rule=f"runs that stopped at a recall of {LEVEL}: yes if the IoU of ReBased less that of Based has an interval "
    f"above 0, no if it lies below 0. Controls: every kernel reaches {LEVEL}, and the recalls of the two differ by "
    f"{EQUAL} at most. Regime: {bench.SECTION_5.words}. Sizes of the quick budget: 6 seeds; with the first 3 of them "
    "the rule was undecided",
    answers={YES: "Yes, ReBased's attention is sharper", NO: "No, Based's attention is sharper"},
    change="Five seeds at 128 tokens, 32 pairs and 12 heads with ReBased ahead, as the paper prints.",
    configs=configs,
    stages=stages,
    verdict=verdict,
    numbers=numbers,
    tables=lambda rows: [*compare_section_5(rows), *tables(rows)],
    charts=charts,
    maps=maps,
    meaning={
        YES: "ReBased's maps are the less blurred of the two. Neither looks only at the answer: do not read them as an "
        "explanation.",
        NO: "The order of the paper is not found: Based looks more at the answer at equal recall. A sharper map is not "
        "what recall comes from.",
        OPEN: "The order of the two kernels is within the spread of the seeds.",
    },
)
