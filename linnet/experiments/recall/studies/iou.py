"""C9: at equal accuracy, how much of a query's attention is on the value it asks for: softmax, ReBased, Based?

    p = weight on that value, of the weight on the context        IoU = p / (2 - p)        (recall/iou.py)

Section 5 of Aksenov et al. 2024 (arXiv:2402.10644), N = 128, 32 pairs: softmax .999, Based .157, ReBased .173 at
accuracies 1, .956 and .957; formula and error bars are not given, and .016 is the whole difference of the two. The
first layer is fixed to the previous token, so that there is one right place to look at. Runs end once they are good
enough: those that end at 0.95 are compared, the others only tell how IoU goes along with accuracy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...results import Row
from ..config import RecallConfig
from ..stats import interval, paired
from ..study import BRIEF, CONFIRMED, FEWEST, REFUTED, UNCLEAR, UNTESTED, Study, Table, Verdict, grid
from .length import PAPER

KERNELS = ("softmax", "rebased", "based")
STOPS = (0.5, 0.8, 0.95)
LEVEL = STOPS[-1]  # the accuracy at which kernels are compared
AHEAD = 0.2  # of IoU, softmax before ReBased
NOT_BEHIND = 0.02  # of IoU, ReBased before Based
OURS = RecallConfig(first="shift", key_dim=8, probes=("iou",))
Runs = dict[tuple[str, float], dict[int, dict[str, Any]]]  # (kernel, accuracy to stop at) -> seed -> metrics


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(OURS.but(steps=4, stop_at=LEVEL, seq_len=32, pairs=8, d_model=16), mixer=KERNELS)
    if budget == "brief":
        base = BRIEF.but(first="shift", steps=400, stop_at=LEVEL, probes=("iou",))
        return [
            config.but(key_dim=None if config.mixer == "softmax" else 8)
            for config in grid(base, mixer=KERNELS, seed=range(6))
        ]
    if budget == "paper":
        base = PAPER.but(first="shift", probes=("iou",), seq_len=128, d_model=64, head_dim=5, lr=3e-3)
        one = base.but(mixer="softmax", n_heads=1, key_dim=None, head_dim=None)
        both = [one, *grid(base, mixer=KERNELS[1:])]
        return [config for kernel in both for config in grid(kernel, stop_at=STOPS, seed=range(5))]
    heads, seeds = (1, 3) if budget == "quick" else (4, 10)
    found = grid(OURS.but(n_heads=heads), mixer=KERNELS, stop_at=STOPS, seed=range(seeds))
    return [config.but(key_dim=None) if config.mixer == "softmax" else config for config in found]


def runs(rows: Sequence[Row]) -> Runs:
    """Every run of the study; they all stop when they are good enough, so `by_cell` would pass them over."""
    found: Runs = defaultdict(dict)
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        found[config.mixer, config.stop_at][config.seed] = row["metrics"]
    return dict(found)


def looks(found: dict[int, dict[str, Any]], name: str) -> dict[int, float]:
    """A number of the mean over heads, of the seeds that got as far as they should."""
    values = {seed: m["iou"]["mean"][name] for seed, m in found.items() if m["ending"] == "stopped"}
    return {seed: value for seed, value in values.items() if value is not None}


def verdict(rows: Sequence[Row]) -> Verdict:
    iou = {kernel: looks(runs(rows).get((kernel, LEVEL), {}), "iou") for kernel in KERNELS}
    common = set.intersection(*(set(seeds) for seeds in iou.values()))
    if len(common) < FEWEST:
        return Verdict(
            UNTESTED, f"all kernels reach an accuracy of {LEVEL} with {len(common)} seeds, and the rule wants {FEWEST}"
        )
    softmax, rebased, based = iou.values()
    ahead, order = paired(softmax, rebased), paired(rebased, based)
    said = f"IoU at an accuracy of {LEVEL}: softmax - ReBased {ahead}, ReBased - Based {order}, {order.seeds} seeds"
    if ahead.low >= AHEAD and order.low > -NOT_BEHIND:
        sure = "above" if order.low > 0 else "not apart from"
        return Verdict(CONFIRMED, f"{said}; ReBased is {sure} Based")
    if ahead.high < AHEAD or order.high < 0:
        return Verdict(REFUTED, said)
    return Verdict(UNCLEAR, said)


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's, of three pairs or more that are not all alike."""
    x = np.asarray(pairs, dtype=np.float64)
    if len(x) < 3 or bool((x.std(0) < 1e-12).any()):
        return None
    return float(np.corrcoef(x.T)[0, 1])


def tables(rows: Sequence[Row]) -> list[Table]:
    found = dict(sorted(runs(rows).items(), key=lambda item: (KERNELS.index(item[0][0]), item[0][1])))
    lines = [(kernel, f"{stop:g}", *_line(seeds)) for (kernel, stop), seeds in found.items()]
    head = ("kernel", "ends at", "got there", "accuracy", "p", "IoU", "best head", "top 1", "entropy")
    together = []
    for kernel in dict.fromkeys(kernel for kernel, _ in found):
        pairs = [
            (m["iou"]["mean"]["iou"], m["accuracy"]) for (k, _), s in found.items() if k == kernel for m in s.values()
        ]
        r = correlation([pair for pair in pairs if None not in pair])
        together.append((kernel, "" if r is None else f"{r:.2f}", str(len(pairs))))
    return [
        Table(head, lines, "where a query looks: weights over the context, mean over heads"),
        Table(("kernel", "correlation", "runs"), together, "IoU and accuracy over runs"),
    ]


def _line(seeds: dict[int, dict[str, Any]]) -> tuple[str, ...]:
    """Of all runs of a kernel, those that did not get there included: their accuracy says so."""
    every = list(seeds.values())
    values = {name: [m["iou"]["mean"][name] for m in every] for name in ("p", "iou", "hit", "entropy")}
    values["accuracy"] = [m["accuracy"] for m in every]
    values["best"] = [max((h["iou"] for h in m["iou"]["heads"] if h["iou"] is not None), default=None) for m in every]
    shown = {name: [value for value in of if value is not None] for name, of in values.items()}
    order = ("accuracy", "p", "iou", "best", "hit", "entropy")
    reached = sum(m["ending"] == "stopped" for m in every)
    return (f"{reached} of {len(every)}", *(str(interval(shown[n])) if shown[n] else "" for n in order))


def maps(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The weights of the first seed with which every kernel got to LEVEL, on its first reported sequence."""
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


STUDY = Study(
    name="iou",
    claim="C9",
    question="At equal accuracy, how much of a query's attention is on the value it asks for?",
    expected="softmax far ahead, then ReBased, then Based: .999, .173 and .157 in the paper, which has no error bars",
    rule=f"runs that stopped at an accuracy of {LEVEL}: confirmed if the IoU of softmax is {AHEAD} or more above that "
    f"of ReBased (whole interval), and that of ReBased not {NOT_BEHIND} below that of Based; refuted if either is "
    "the other way with its whole interval: softmax less ahead, ReBased below Based",
    configs=configs,
    verdict=verdict,
    tables=tables,
    maps=maps,
    cost={"smoke": "seconds", "quick": "2 minutes"},
)
