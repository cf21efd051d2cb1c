"""C4: is the floor of Based's kernel at work: does it put weight on tokens nobody asked for, and does that matter?

    kappa(s) = 1 + s + s^2 / 2 >= 1/2        rest(N) = weight on all tokens but the right one, of 1, at length N
    change = accuracy with kappa - 1/2 at test time only, less accuracy with kappa: the same q, k and v

The argument of Aksenov et al. 2024 (arXiv:2402.10644): every further token costs Based a weight of 1/2 or more. They
report no measurement of it. A change of either sign shows the floor at work: a model that suffers from it gains without
it, one that has learned to live with it loses. Zero filler is one direction to suppress, random filler is many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...results import Row
from ..config import RecallConfig
from ..probe_floor import LEVELS
from ..stats import Interval, interval, paired
from ..study import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    UNTESTED,
    Cell,
    Study,
    Table,
    Verdict,
    by_cell,
    grid,
    missing,
    shown,
)
from .length import BASE, LEARNED, PAPER, brief

GROWS = 0.05  # of rest, from the shortest to the longest
MOVES = 0.02  # of accuracy, by the change of kernel
OURS = BASE.but(mixer="based", probes=("floor",))


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(OURS.but(steps=4), seq_len=(32, 64))
    if budget == "brief":
        return brief("based")
    if budget == "paper":
        base = PAPER.but(mixer="based", probes=("floor",))
        axes = grid(base, d_model=(16, 24, 32, 48), seq_len=(256, 2048), lr=(5e-4, 1e-3, 3e-3, 1e-2), seed=range(5))
        return [config.but(head_dim=config.d_model // 12) for config in axes]
    widths, lengths, seeds = ((24,), (32, 128), 3) if budget == "quick" else ((16, 24, 32), (32, 128, 512), 5)
    fillers, rates = ("zero", "random"), (1e-2, 3e-2)
    return grid(OURS, filler=fillers, d_model=widths, seq_len=lengths, lr=rates, seed=range(seeds))


def cell(config: RecallConfig) -> tuple[str, int, int]:
    return config.filler, config.d_model, config.seq_len


def known(cells: dict[Cell, dict[int, dict[str, Any]]], name: str) -> dict[Cell, dict[int, float]]:
    """One value of a probe for each cell and seed, where there is one: a run that diverged has none."""
    found = {
        cell: {seed: p[name] for seed, p in seeds.items() if p.get(name) is not None} for cell, seeds in cells.items()
    }
    return {cell: seeds for cell, seeds in found.items() if seeds}


def verdict(rows: Sequence[Row]) -> Verdict:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    rest, without = known(probes, "rest"), known(probes, "without")
    lengths = sorted({length for _, _, length in rest})
    if len(lengths) < 2:
        return Verdict(UNTESTED, f"rows of two lengths are needed, there are {len(lengths)}")
    short, long = lengths[0], lengths[-1]
    said, met, against = [], 0, 0
    for filler, width in sorted({(filler, width) for filler, width, _ in rest}):
        first, last = (filler, width, short), (filler, width, long)
        absent = missing(rest, [first, last])
        if absent:
            return absent
        if max(interval(list(one[last].values())).mean for one in (accuracy, without)) < LEARNED:
            continue  # neither kernel can show anything
        grown, moved = paired(rest[last], rest[first]), paired(without[last], accuracy[last])
        met += grown.low > 0 and grown.mean >= GROWS and moves(moved)
        against += grown.high < GROWS or max(abs(moved.low), abs(moved.high)) < MOVES
        said.append(f"{filler} filler, d={width}: weight elsewhere {grown}, accuracy without the floor {moved}")
    if not said:
        return Verdict(UNTESTED, f"no filler and width has an accuracy of {LEARNED} or more at {long} tokens")
    sentence = f"change from {short} to {long} tokens, and at {long} by kappa - 1/2: " + "; ".join(said)
    return Verdict(CONFIRMED if met == len(said) else REFUTED if against == len(said) else UNCLEAR, sentence)


def moves(gap: Interval) -> bool:
    """It is not zero and not small, whatever its sign."""
    return (gap.low > 0 or gap.high < 0) and abs(gap.mean) >= MOVES


def tables(rows: Sequence[Row]) -> list[Table]:
    found, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    means = {name: known(found, name) for name in ("rest", "weight", "floor", "near", "without")}
    weights, scores = [], []
    for one in sorted(means["rest"]):
        of = {name: interval(list(cells[one].values())) for name, cells in means.items()}
        about = tuple(map(shown, one))
        change = paired(means["without"][one], accuracy[one])
        line = (str(interval(list(accuracy[one].values()))), str(change), str(of["rest"]))
        weights.append((*about, *line, f"{of['weight'].mean:.4f}", str(of["floor"]), str(change.seeds)))
        quantiles = zip(
            *(probe["quantiles"] for probe in found[one].values() if probe["rest"] is not None), strict=True
        )
        scores.append((*about, str(of["near"]), *(f"{sum(q) / len(q):.2f}" for q in quantiles)))
    head = ("filler", "d", "N", "accuracy", "without floor, change", "elsewhere", "one token", "of it floor", "seeds")
    levels = tuple(f"{level:.0%}" for level in LEVELS)
    return [
        Table(head, weights, "weight of Based on tokens that were not asked for"),
        Table(("filler", "d", "N", "within .25 of -1", *levels), scores, "quantiles of s = q.k / sqrt(f) on them"),
    ]


STUDY = Study(
    name="floor",
    claim="C4",
    question="Does the floor of 1/2 under Based's kernel put weight where it should not, and does accuracy notice?",
    expected="weight elsewhere grows with the length and s is hardly ever near -1; no number was published",
    rule=f"confirmed if, with every filler and width that learns, the weight elsewhere grows by {GROWS} or more from "
    "the shortest length to the longest with an interval above 0, and kappa - 1/2 at test time moves accuracy by "
    f"{MOVES} or more either way with an interval without 0; refuted if everywhere it does not grow by {GROWS} or the "
    f"move is within {MOVES}",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "8 minutes"},
)
