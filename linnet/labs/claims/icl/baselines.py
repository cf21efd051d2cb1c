"""Do we measure what the paper measures? 40 printed numbers that need no training: three kinds of ridge, one layer.

    ConstRR, AdaRR, TunedRR    ridge with one penalty, the estimated one, the estimate scaled and capped: rows of
                               `linnet icl table`, 10 noises each
    one layer                  w = alpha / (n + d + 1 + E[sigma²]), the best that one layer of any kind can do

Vladymyrov et al. 2024 (arXiv:2402.14180), Table 1. None of them is trained, so this decides what the numbers mean: d,
n, sigma as a standard deviation, and the ½ in the loss that the paper's text leaves out. z as in icl/table_compare.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Number,
    Setting,
    Table,
    Unit,
    number,
    unit,
    untested,
)
from ...core.results import Row
from ...icl.baselines import one_step
from ...icl.evaluate import measure
from ...icl.noise import Noise
from ...icl.paper import BASELINES as PRINTED
from ...icl.paper import NAMES, TABLE1, D, N
from ...icl.regression import Regression
from ...icl.table_compare import compare
from .chains import NAMED, SEQUENCES, TWO, rules, too_few
from .controls import APART, bounded, regime_of, sequences_of

EXPERIMENT = "icl-one-step"
RULES = ("const_rr", "ada_rr", "tuned_rr")
KINDS = ("one_step", *RULES)
STRAY = 0.1  # of the cells: more than this apart, and it is another protocol


class Cell(NamedTuple):
    """One printed number and ours."""

    kind: str
    noise: str
    printed: float
    ours: float
    z: float


def one_layer(config: Config) -> dict[str, Any]:
    noise = Noise.parse(config["noise"])
    problem = Regression(noise, config["d"], config["n"])
    return asdict(measure(lambda gram: one_step(gram, noise), problem, config["sequences"]))


def units(setting: Setting) -> list[Unit]:
    noises = ("U0", TWO) if setting.budget == "smoke" else NAMES
    work = rules(setting, noises, RULES)
    sequences = SEQUENCES[setting.budget]
    for noise in noises:
        config = {"experiment": EXPERIMENT, "kind": "one_step", "noise": noise, "sequences": sequences, "d": D, "n": N}
        work.append(unit(one_layer, config, 1.5 * sequences / 100_000))
    return work


def read(rows: Sequence[Row]) -> Finding:
    early = too_few(rows)
    if early:
        return early
    cells = [known for row in rows if (known := _cell(row))]
    if len(cells) < len(KINDS) * len(NAMES):
        return untested(f"{len(cells)} of the paper's {len(KINDS) * len(NAMES)} cells have a row")
    apart = [cell for cell in cells if abs(cell.z) > APART]
    widest = max(cells, key=lambda cell: abs(cell.z))
    ratios = [cell.ours / cell.printed for cell in cells if cell.printed >= 0.01]
    state = YES if not apart else NO if len(apart) > STRAY * len(cells) else OPEN
    numbers = [
        Number(
            f"the paper's baseline cells within {APART:g} standard errors of ours",
            "40 printed",
            len(cells) - len(apart),
            unit=f"of {len(cells)}",
        ),
        number("ours / the paper's loss, mean of the cells of .01 and more", "1", ratios, of="cells"),
        Number("largest distance, in standard errors", None, abs(widest.z)),
    ]
    sentence = (
        f"{len(cells) - len(apart)} of {len(cells)} cells agree within {APART:g} standard errors; the farthest is "
        f"{NAMED[widest.kind]} on {widest.noise}, {widest.ours:.4f} against the paper's {widest.printed:.3f} "
        f"({abs(widest.z):.1f} errors)"
    )
    sequences = sequences_of(rows)
    here = f"{len(NAMES)} kinds of noise, {sequences:,} sequences"
    regime = regime_of(rows, f"{len(NAMES)} kinds of noise", here)
    evidence = Evidence(state, regime, [bounded(rows)], sequences, "sequences")
    return Finding(evidence, sentence, numbers, regime.here, _meaning(state), [_table(cells)], [_chart(cells)])


def _cell(row: Row) -> Cell | None:
    """Return one cell; None if the paper prints no value or ours is not finite."""
    kind, noise, metrics = row["config"]["kind"], row["config"]["noise"], row["metrics"]
    printed = TABLE1["diag", 1, noise] if kind == "one_step" else PRINTED.get((kind, noise))
    if printed is None or metrics["sharp"] is None:
        return None
    z, _ = compare(metrics, printed)
    return Cell(kind, noise, printed, metrics["sharp"], 0.0 if z is None else z)


def _meaning(state: str) -> str:
    if state == NO:
        return "Our protocol differs from the paper's: no other number of this paper can be compared with ours."
    text = (
        "The protocol is the paper's (10 features, 20 examples, noise as a standard deviation, half the squared error "
        "above the oracle), so the models' numbers can be compared."
    )
    return text + " Ridge with an estimated penalty needs no training and is the baseline to beat."


def _table(cells: Sequence[Cell]) -> Table:
    by = {(cell.kind, cell.noise): cell for cell in cells}
    body = [
        (NAMED[kind], *(f"{by[kind, noise].ours:.4f} ({by[kind, noise].printed:.3f})" for noise in NAMES))
        for kind in KINDS
    ]
    return Table(("baseline", *NAMES), body, "loss above the oracle by noise: ours (the paper's)")


def _chart(cells: Sequence[Cell]) -> Chart:
    series: dict[str, list[tuple[str, float]]] = {}
    for cell in cells:
        if cell.kind in RULES:
            series.setdefault(NAMED[cell.kind], []).append((cell.noise, cell.ours))
            series.setdefault(f"{NAMED[cell.kind]} paper", []).append((cell.noise, cell.printed))
    caption = "What each way of choosing ridge's penalty loses to ridge that is told the noise; lower is better."
    return Chart("three kinds of ridge", "noise", "loss above the oracle", series, kind="bars", caption=caption)


CLAIM = Claim(
    name="baselines",
    number="",
    place=1,
    paper="icl",
    statement="Ridge regression and one layer have here the losses that the paper prints for them.",
    source="The paper prints 30 losses of three kinds of ridge regression on 10 kinds of noise, and 10 of one layer, "
    "which has a best answer in closed form; on U5 (noise uniform from 0 to 5) it prints .365, .068 and .049 for "
    "ConstRR, AdaRR and TunedRR and .906 for one layer.",
    rule=f"yes if all 40 cells agree within {APART:g} standard errors (ours, the paper's protocol and its rounding "
    f"together); no if more than {STRAY:.0%} of them do not; open in between. Nothing is trained, so the sequences are "
    "the repeats. Control: no loss is below that of Bayes. Regime: the paper's 10 features and 20 examples",
    answers={YES: "Yes, in all 40 cells", NO: "No, this is another protocol"},
    change=f"more than {STRAY:.0%} of the 40 cells beyond {APART:g} standard errors, with any other test sequences",
    units=units,
    read=read,
)
