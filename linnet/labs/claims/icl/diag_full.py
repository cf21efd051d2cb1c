"""Four numbers a layer against two full matrices: DIAG and FULL, cell by cell of Table 1.

    gap = loss(DIAG) - loss(FULL), same depth, same noise          at d = 10: 4 numbers a layer against 242

Vladymyrov et al. 2024 (arXiv:2402.14180), Table 1 and figure 3: close wherever the noise is uniform, and FULL ahead
where it is one of two values. The rows are those of `linnet icl table`. A gap has an interval over seeds, where they
are several; DIAG is only as good as FULL if FULL is trained as well as the paper's, which is a control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from statistics import median
from typing import Any, NamedTuple

from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Evidence,
    Finding,
    Number,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    untested,
)
from ...core.intervals import Interval, paired
from ...core.results import Row
from ...icl.paper import NAMES, TABLE1
from ...icl.table_units import EXPERIMENT
from ..open.verdict_logic import between
from .chains import TWO, UNIFORM, cells, chains, layered, profiles, too_few
from .controls import bounded, counted, one_layer, regime_of, sequences_of, trained

CLOSE = 0.012  # the widest gap on uniform noise in the paper's own table
ENOUGH, STRAY = 0.9, 0.1  # of the uniform cells: within CLOSE, and beyond
AHEAD = 3  # layers from which FULL is ahead on TWO
Z = 2.0  # standard errors, where there is one seed
KINDS = ("full", "diag")
PAIRS = 7 * len(NAMES)
Metrics = Mapping[str, Any]
BySeed = Mapping[int, float]


class Gap(NamedTuple):
    """DIAG - FULL of one cell: ours with its interval, and the paper's. diag, full: the best seed of each."""

    layers: int
    noise: str
    diag: float
    full: float
    measured: Interval
    of: str  # what the interval is over
    seeds: int

    @property
    def ours(self) -> float:
        return self.measured.mean

    @property
    def printed(self) -> float:
        return TABLE1["diag", self.layers, self.noise] - TABLE1["full", self.layers, self.noise]

    def __str__(self) -> str:
        return f"{self.noise} with {layered(self.layers)}"


def units(setting: Setting) -> list[Unit]:
    noises = [UNIFORM, TWO] if setting.budget in ("smoke", "quick") else NAMES
    return chains(setting, noises, KINDS)


def read(rows: Sequence[Row]) -> Finding:
    early = too_few(rows)
    if early:
        return early
    pairs = gaps(rows)
    uniform = [gap for gap in pairs if gap.noise.startswith("U")]
    two = [gap for gap in pairs if gap.noise == TWO and gap.layers >= AHEAD]
    if not uniform or not two:
        return untested(
            f"DIAG and FULL of the same depth are wanted on uniform noise and, from {AHEAD} layers, on {TWO}"
        )
    within = [between(gap.measured, -CLOSE, CLOSE) for gap in uniform]
    wide = [gap for gap, where in zip(uniform, within, strict=True) if where == NO]
    ahead, behind = [g for g in two if g.measured.low > 0], [g for g in two if g.measured.high < 0]
    held = not wide and within.count(YES) >= ENOUGH * len(uniform) and len(ahead) == len(two)
    broken = len(wide) > STRAY * len(uniform) or (behind and not ahead)
    state = YES if held else NO if broken else OPEN
    widest, last = max(uniform, key=lambda gap: abs(gap.ours)), max(two, key=lambda gap: gap.layers)
    sentence = (
        f"on uniform noise DIAG is within {CLOSE:g} of FULL in {len(uniform) - len(wide)} of {len(uniform)} cells, the "
        f"widest {widest} ({figures(widest.diag)} against {figures(widest.full)}); on {TWO} FULL is ahead in "
        f"{len(ahead)} of {len(two)} depths of {AHEAD} layers and more"
    )
    better = [gap for gap in wide if gap.full < TABLE1["full", gap.layers, gap.noise]]
    if better:
        sentence += f"; where the gap is wide, our FULL is below the paper's in {len(better)} of {len(wide)} cells"
    numbers = [
        Number(f"uniform cells in which DIAG and FULL differ by more than {CLOSE:g}", "none", len(wide),
               unit=f"of {len(uniform)}"),
        _number(f"widest gap on uniform noise, DIAG's loss - FULL's ({widest})", "0.012 (U3 with 3 layers)", widest),
        Number(
            "half of the uniform cells have a gap of no more than",
            f"{_typical(uniform, 'printed'):.3f}",
            _typical(uniform, "ours"),
        ),
        _number(f"DIAG's loss - FULL's on {TWO} with {last.layers} layers", f"{last.printed:.3f}", last),
    ]  # fmt: skip
    unseen, charts = _unseen(rows)
    meaning = _meaning(widest, last, bool(ahead))
    if any(one.ours < 1 for one in unseen):
        meaning += " On noise beyond its training it also carries over better."
    seeds = min(gap.seeds for gap in pairs)
    here = f"{len(pairs)} pairs of models"
    regime = regime_of(rows, f"{PAIRS} pairs of models", here, pairs_of_models=(len(pairs), PAIRS, PAIRS))
    controls = [one_layer(rows), trained(rows), bounded(rows)]
    evidence = Evidence(state, regime, controls, seeds, "seed" if seeds == 1 else "seeds")
    scope = f"{regime.here}, {counted(seeds)} each, {sequences_of(rows):,} sequences"
    return Finding(evidence, sentence, numbers + unseen, scope, meaning, [_table(pairs)], [_chart(pairs), *charts])


def gaps(rows: Sequence[Row]) -> list[Gap]:
    """Return every cell that both kinds have, by noise and depth."""
    table = cells(rows)
    pairs = []
    for kind, layers, noise in sorted(table, key=lambda name: (NAMES.index(name[2]), name[1])):
        of = {"experiment": EXPERIMENT, "layers": layers, "noise": noise}
        ours, theirs = (by_seed(rows, "sharp", kind=one, **of) for one in ("diag", "full"))
        if kind == "diag" and set(ours) & set(theirs):
            pairs.append(_gap(layers, noise, table["diag", layers, noise], table["full", layers, noise], ours, theirs))
    return pairs


def _gap(layers: int, noise: str, diag: Metrics, full: Metrics, ours: BySeed, theirs: BySeed) -> Gap:
    """Return the gap over the seeds that both have; where that is one, over its sequences."""
    measured = paired(ours, theirs)
    seeds, of = measured.seeds, counted(measured.seeds)
    if seeds == 1:
        half = Z * hypot(diag["sharp_se"], full["sharp_se"])  # as if independent, which is too wide
        measured = Interval(measured.mean, measured.mean - half, measured.mean + half, 1)
        of = counted(full["count"], "sequences")
    return Gap(layers, noise, diag["sharp"], full["sharp"], measured, of, seeds)


def _number(what: str, paper: str, gap: Gap) -> Number:
    return Number(what, paper, gap.ours, gap.measured.low, gap.measured.high, gap.of)


def _typical(pairs: Sequence[Gap], of: str) -> float:
    return float(median(abs(getattr(gap, of)) for gap in pairs))


def _meaning(widest: Gap, last: Gap, ahead: bool) -> str:
    text = (
        f"Four numbers a layer do almost all that 242 do where the noise is spread evenly: at most "
        f"{figures(abs(widest.ours))} apart here, {abs(widest.ours) / max(widest.diag, widest.full):.0%} of that loss."
    )
    if ahead:
        text += (
            f" Where it takes few values, full matrices pay: {figures(last.full)} against {figures(last.diag)} on "
            f"{TWO} with {last.layers} layers."
        )
    return text + " DIAG does not depend on how the inputs are rotated, and can be read layer by layer."


def _table(pairs: Sequence[Gap]) -> Table:
    body = [
        (gap.noise, str(gap.layers), figures(gap.diag), figures(gap.full), _shown(gap.measured),
         f"{gap.printed:+.3f}")
        for gap in pairs
    ]  # fmt: skip
    return Table(("noise", "layers", "DIAG", "FULL", "DIAG - FULL", "the paper's"), body, "loss above the oracle")


def _shown(measured: Interval) -> str:
    return f"{measured.mean:+.4f} [{measured.low:+.4f}, {measured.high:+.4f}]"


def _chart(pairs: Sequence[Gap]) -> Chart:
    series = {
        f"{name} {noise}": [(gap.layers, getattr(gap, name.lower())) for gap in pairs if gap.noise == noise]
        for noise in (UNIFORM, TWO)
        for name in ("DIAG", "FULL")
    }
    caption = "Lower is better. U5: noise uniform from 0 to 5; {1,3}: one of the two."
    return Chart("DIAG against FULL by layers", "layers", "loss above the oracle", series, log_y=True, caption=caption)


def _unseen(rows: Sequence[Row]) -> tuple[list[Number], list[Chart]]:
    """Return numbers and chart of the deepest pair on TWO by noise level, also at levels outside training."""
    curves = profiles(rows, TWO)
    depths = [name.split()[1] for name in curves if name.startswith("DIAG") and f"FULL {name.split()[1]}" in curves]
    if not depths:
        return [], []
    deepest = max(depths, key=int)
    series = {
        name: [(sigma, float(level["median"] or 0.0)) for sigma, level in curves[name].items()]
        for name in (f"DIAG {deepest}", f"FULL {deepest}")
    }
    (sigma, diag), (_, full) = (points[-1] for points in series.values())
    what = f"median loss at sigma {sigma:g}, trained on 1 and 3: DIAG / FULL, {deepest} layers"
    numbers = [Number(what, "below 1 in figure 3, no number", diag / full)] if full > 0 else []
    caption = "Trained on sigma 1 and 3 only. The median: outside the training the mean can be a single sequence's."
    chart = Chart("by noise level, also unseen ones", "sigma", "median loss", series, log_y=True, caption=caption)
    return numbers, [chart]


CLAIM = Claim(
    name="diag-full",
    number="",
    place=5,
    paper="icl",
    statement="Four numbers a layer do nearly as well as full matrices, unless the noise takes two values only.",
    source="The diagonal model is nearly as good as the full one: on uniform noise the paper's table has them "
    "within .012 of each other at every depth (widest: .087 against .075, sigma up to 3, three layers). Where sigma is "
    "1 or 3 FULL is ahead from three layers (the paper prints .076 against .098) to seven (.010 against .018).",
    rule=f"yes if the interval of DIAG - FULL lies within {CLOSE:g} in {ENOUGH:.0%} of the uniform cells or more and "
    f"beyond it in none, and FULL is lower, beyond its interval, on {TWO} at every depth from {AHEAD} layers; no if "
    f"more than {STRAY:.0%} of the uniform cells lie beyond, or FULL is behind on {TWO}; open otherwise. Controls: one "
    "layer has its least possible loss, FULL and DIAG are as good as the paper's, and no loss is below that of Bayes. "
    f"Regime: d = 10, n = 20, all {PAIRS} pairs",
    answers={YES: "Yes, four numbers do nearly as well", NO: "No, the gap is another one"},
    change=f"five seeds of every pair: gaps beyond {CLOSE:g} in more than {STRAY:.0%} of the uniform cells, or in none",
    units=units,
    read=read,
)
