"""Are four numbers per layer as good as two full matrices? DIAG against FULL, cell by cell of Table 1.

    gap = loss(DIAG) - loss(FULL), same depth, same noise          at d = 10: 4 numbers a layer against 242

Vladymyrov et al. 2024 (arXiv:2402.14180), Table 1 and figure 3: close wherever the noise is uniform, and FULL ahead
where it is one of two values. The rows are those of `linnet icl table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from statistics import median
from typing import NamedTuple

from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Finding,
    Number,
    Setting,
    Table,
    Unit,
    figures,
    untested,
)
from ...core.results import Row
from ...icl.paper import NAMES, TABLE1
from .chains import TWO, UNIFORM, cells, chains, profiles, too_few

CLOSE = 0.012  # the widest gap on uniform noise in the paper's own table
STRAY = 0.1  # of the uniform cells
AHEAD = 3  # layers from which FULL is ahead on TWO
Z = 2.0  # standard errors


class Gap(NamedTuple):
    """DIAG - FULL of one cell: ours with its standard error, and the paper's."""

    layers: int
    noise: str
    diag: float
    full: float
    se: float  # as if the two were independent: they see the same sequences, so the true error is smaller
    sequences: int

    @property
    def ours(self) -> float:
        return self.diag - self.full

    @property
    def printed(self) -> float:
        return TABLE1["diag", self.layers, self.noise] - TABLE1["full", self.layers, self.noise]

    def __str__(self) -> str:
        return f"{self.noise} with {self.layers} layer{'s' if self.layers > 1 else ''}"


def units(setting: Setting) -> list[Unit]:
    noises = [UNIFORM, TWO] if setting.budget in ("smoke", "quick") else NAMES
    return chains(setting, noises, ("full", "diag"))


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
    wide = [gap for gap in uniform if abs(gap.ours) - Z * gap.se > CLOSE]
    ahead, behind = [g for g in two if g.ours > Z * g.se], [g for g in two if g.ours < -Z * g.se]
    stray = len(wide) > STRAY * len(uniform)
    held = not wide and len(ahead) == len(two)
    outcome = CONFIRMED if held else REFUTED if stray or (behind and not ahead) else UNCLEAR
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
        _number(f"widest gap on uniform noise, DIAG's loss - FULL's ({widest})", "0.012 (U3 with 3 layers)", widest),
        Number(
            "half of the uniform cells have a gap of no more than",
            f"{_typical(uniform, 'printed'):.3f}",
            _typical(uniform, "ours"),
        ),
        _number(f"DIAG's loss - FULL's on {TWO} with {last.layers} layers", f"{last.printed:.3f}", last),
    ]
    unseen, charts = _unseen(rows)
    meaning = _meaning(widest, last, bool(ahead))
    if any(one.ours < 1 for one in unseen):
        meaning += " On noise beyond its training it also carries over better."
    return Finding(outcome, sentence, numbers + unseen, meaning, [_table(pairs)], [_chart(pairs), *charts])


def gaps(rows: Sequence[Row]) -> list[Gap]:
    """Return every cell that both kinds have, by noise and depth."""
    table = cells(rows)
    both = [(layers, noise) for kind, layers, noise in table if kind == "diag" and ("full", layers, noise) in table]
    pairs = []
    for layers, noise in sorted(both, key=lambda pair: (NAMES.index(pair[1]), pair[0])):
        diag, full = table["diag", layers, noise], table["full", layers, noise]
        pairs.append(
            Gap(layers, noise, diag["sharp"], full["sharp"], hypot(diag["sharp_se"], full["sharp_se"]), full["count"])
        )
    return pairs


def _number(what: str, paper: str, gap: Gap) -> Number:
    return Number(what, paper, gap.ours, gap.ours - Z * gap.se, gap.ours + Z * gap.se, f"{gap.sequences:,} sequences")


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
        (gap.noise, str(gap.layers), figures(gap.diag), figures(gap.full), f"{gap.ours:+.4f} ± {Z * gap.se:.4f}",
         f"{gap.printed:+.3f}")
        for gap in pairs
    ]  # fmt: skip
    return Table(("noise", "layers", "DIAG", "FULL", "DIAG - FULL", "the paper's"), body, "loss above the oracle")


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
    question="Does a layer need full matrices, or do four numbers do the same?",
    statement="The diagonal model is nearly as good as the full one: on uniform noise the paper's table has them "
    "within .012 of each other at every depth (widest: .087 against .075, sigma up to 3, three layers). Where sigma is "
    "1 or 3 FULL is ahead from three layers (the paper prints .076 against .098) to seven (.010 against .018).",
    rule=f"confirmed if DIAG and FULL are within {CLOSE:g} in every uniform cell (two standard errors allowed) and "
    f"FULL is lower, beyond two, on {TWO} at every depth from {AHEAD} layers; refuted if more than {STRAY:.0%} of the "
    f"uniform cells are wider, or FULL is behind on {TWO}; unclear otherwise",
    units=units,
    read=read,
)
