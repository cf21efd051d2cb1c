"""Three layers judge from the labels how noisy they are, GD++ does not: losses at each noise level, held fixed.

    worst(model) = the largest loss above the oracle over sigma in 0..5, the levels of the training

Vladymyrov et al. 2024 (arXiv:2402.14180), figure 2. ConstRR has one penalty: right at one sigma, far off at the others.
A model that adapts is flat. GD++ is a fixed filter of the inputs and cannot adapt; ConstRR is the best of those, so
GD++ should become ConstRR, level by level. Trained on U5, sigma uniform from 0 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

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
    figures,
    untested,
)
from ...core.intervals import Interval, interval
from ...core.results import Row
from ...icl.noise import Noise
from ..open.verdict_logic import below
from .chains import NAMED, PROFILE, UNIFORM, cells, chains, layered, profiles, repeats, rule_profile, rules, too_few
from .controls import bounded, counted, protocol, regime_of, trained, trainings

FLATTER = 0.5  # worst loss of three layers, of that of two
MIRROR = 0.1  # how far GD++ may be from ConstRR, of ConstRR's mean over the levels
Z = 2.0  # standard errors, where there is one seed
TOP = Noise.parse(UNIFORM).largest
RULES = ("ada_rr", "tuned_rr", "bayes")
JUDGED = (("diag", 2, UNIFORM), ("diag", 3, UNIFORM), ("gd++", 3, UNIFORM))
NEEDED = ("DIAG 2", "DIAG 3", "GD++ 3", "ConstRR")
SHOWN = ("DIAG 2", "DIAG 3", "DIAG 7", "FULL 7", "GD++ 3", "ConstRR", "AdaRR", "TunedRR", "Bayes")
Profile = dict[float, dict[str, Any]]


def units(setting: Setting) -> list[Unit]:
    more = repeats(setting, UNIFORM, ("diag", "gd++"), (1, 2, 3))
    return [*chains(setting, [UNIFORM]), *more, *rules(setting, [UNIFORM], RULES), rule_profile(setting, UNIFORM)]


def read(rows: Sequence[Row]) -> Finding:
    early = too_few(rows)
    if early:
        return early
    by_seed = [_inside(rows, seed) for seed in sorted(trainings(rows).get(JUDGED[0], {0}))]
    absent = [name for name in NEEDED if not all(curves.get(name) for curves in by_seed)]
    if absent:
        return untested(f"{absent[0]} has no profile yet")
    curves = by_seed[0]
    flatter = over([ratio(one["DIAG 3"], one["DIAG 2"]) for one in by_seed])
    fixed = over([ratio(one["DIAG 3"], one["ConstRR"]) for one in by_seed])
    off = over([mirror(one["GD++ 3"], one["ConstRR"]) for one in by_seed])
    states = below(flatter, FLATTER), below(off, MIRROR)
    state = NO if NO in states else OPEN if OPEN in states else YES
    beats = overtaken(rows)
    sentence = (
        f"worst loss over sigma 0 to {TOP:g}: DIAG {figures(worst(curves['DIAG 2']))} with 2 layers and "
        f"{figures(worst(curves['DIAG 3']))} with 3, ConstRR {figures(worst(curves['ConstRR']))}; GD++ with 3 layers "
        f"differs from ConstRR by {off.mean:.1%} of its mean loss; "
        + "; ".join(f"DIAG is below {name} {_from(layers, deepest)}" for name, layers, deepest in beats)
    )
    seeds = counted(len(by_seed))
    of = seeds if len(by_seed) > 1 else counted(_sequences(rows), "sequences")
    worst_of = "worst loss over the noise levels, DIAG with 3 layers / "
    numbers = [
        _number(f"{worst_of}with 2 layers", None, flatter, of),
        _number(f"{worst_of}ridge with one penalty (ConstRR)", None, fixed, of),
        _number(
            "distance of GD++ with 3 layers from ConstRR, mean over the levels, of ConstRR's loss",
            "looks the same in figure 2",
            off,
            of,
        ),
    ]
    numbers += [
        Number(f"layers from which DIAG is below {name} on {UNIFORM}", printed, layers)
        for (name, layers, _), printed in zip(beats, ("4", "5, to match or exceed", None), strict=False)
        if layers is not None
    ]
    regime = regime_of(rows, f"sigma 0 to {TOP:g}, 2 to 7 layers", f"sigma 0 to {TOP:g}, 2 and 3 layers")
    controls = [protocol(rows), trained(rows, JUDGED), bounded(rows)]
    evidence = Evidence(state, regime, controls, len(by_seed), seeds.split()[1])
    scope = f"{regime.here}, {seeds}"
    meaning = _meaning(states[0], curves)
    return Finding(evidence, sentence, numbers, scope, meaning, [_table(curves)], [_chart(rows)])


def worst(curve: Profile) -> float:
    return max(float(level["mean"]) for level in curve.values())


def ratio(curve: Profile, other: Profile) -> Interval:
    """Return the ratio of the worst losses, with an interval from Z standard errors of each."""
    (top, top_se), (bottom, bottom_se) = (
        max((level["mean"], level["se"]) for level in c.values()) for c in (curve, other)
    )
    low, high = (top - Z * top_se) / (bottom + Z * bottom_se), (top + Z * top_se) / (bottom - Z * bottom_se)
    return Interval(top / bottom, low, high, 1)


def _number(what: str, paper: str | None, measured: Interval, of: str) -> Number:
    return Number(what, paper, measured.mean, measured.low, measured.high, of)


def mirror(curve: Profile, other: Profile) -> Interval:
    """Return the mean difference over the levels, relative to the mean of the other, with Z standard errors."""
    both = sorted(set(curve) & set(other))
    total = sum(other[sigma]["mean"] for sigma in both)
    apart = sum(abs(curve[sigma]["mean"] - other[sigma]["mean"]) for sigma in both) / total
    half = Z * sqrt(sum(curve[sigma]["se"] ** 2 + other[sigma]["se"] ** 2 for sigma in both)) / total
    return Interval(apart, max(apart - half, 0.0), apart + half, 1)


def over(measured: Sequence[Interval]) -> Interval:
    """Return the interval over seeds; of one seed, that of its sequences."""
    return measured[0] if len(measured) == 1 else interval([one.mean for one in measured])


def overtaken(rows: Sequence[Row]) -> list[tuple[str, int | None, int]]:
    """Return (baseline, layers from which DIAG is below it on the whole distribution or None, deepest DIAG)."""
    table = cells(rows)
    depths = sorted(layers for kind, layers, noise in table if (kind, noise) == ("diag", UNIFORM))
    baselines = []
    for rule in RULES[:2]:
        if (rule, 0, UNIFORM) in table and depths:
            least = table[rule, 0, UNIFORM]["sharp"]
            below = [layers for layers in depths if table["diag", layers, UNIFORM]["sharp"] < least]
            baselines.append((NAMED[rule], below[0] if below else None, depths[-1]))
    return baselines


def _from(layers: int | None, deepest: int) -> str:
    return f"from {layered(layers)}" if layers is not None else f"at none of its depths up to {deepest}"


def _inside(rows: Sequence[Row], seed: int) -> dict[str, Profile]:
    """Return the curves of a seed at the levels of the training."""
    return {
        name: {sigma: level for sigma, level in curve.items() if sigma <= TOP and level["mean"] is not None}
        for name, curve in profiles(rows, UNIFORM, seed).items()
    }


def _sequences(rows: Sequence[Row]) -> int:
    """Return the sequences at each level."""
    return int(max(row["config"]["sequences"] for row in rows if row["config"]["experiment"] == PROFILE))


def _meaning(flatter: str, curves: dict[str, Profile]) -> str:
    if flatter != YES:
        return "A third layer does not make the model adapt here: for noise that varies take ridge with an estimate."
    text = "Three layers of DIAG judge the noise from the labels: one model serves clean and noisy data alike."
    if "AdaRR" in curves:
        better = worst(curves["DIAG 3"]) < worst(curves["AdaRR"])
        text += (
            f" Its worst level is {'better' if better else 'still worse'} than that of AdaRR, ridge with an estimate"
        )
        text += ", which needs no training." if not better else "."
    return text + " Where the noise is always the same, GD++ or plain ridge is all one needs."


def _table(curves: dict[str, Profile]) -> Table:
    sigmas = sorted({sigma for curve in curves.values() for sigma in curve})
    whole = [sigma for sigma in sigmas if sigma == int(sigma)]
    body = [
        (name, *(figures(curve.get(sigma, {}).get("mean")) for sigma in whole), figures(worst(curve)))
        for name, curve in curves.items()
    ]
    return Table(("model, layers", *(f"sigma {sigma:g}" for sigma in whole), "worst"), body, "loss by noise level")


def _chart(rows: Sequence[Row]) -> Chart:
    curves = profiles(rows, UNIFORM)
    series = {
        name: [(sigma, level["mean"]) for sigma, level in curves[name].items() if sigma <= TOP + 1]
        for name in SHOWN
        if name in curves
    }
    caption = (
        f"Trained on sigma from 0 to {TOP:g}; the last point lies outside. Flat and low is what adapting looks like."
    )
    return Chart("loss by noise level", "sigma", "loss above the oracle", series, caption=caption)


CLAIM = Claim(
    name="adaptivity",
    number="",
    place=4,
    paper="icl",
    statement="Three layers judge from the labels how noisy they are, which two layers and GD++ do not.",
    source="With two layers the models suit one noise level only; from three layers on they improve over the whole "
    "range, while GD++ stays at ridge with one fixed penalty (figure 2 of the paper, which prints no numbers for it). "
    "The paper's text says that four layers beat AdaRR where sigma goes up to 4 or more, and that five or more match "
    "or exceed TunedRR.",
    rule=f"yes if the worst loss over the noise levels of the training falls to {FLATTER:g} times or less from two "
    f"layers of DIAG to three, and GD++ with three layers is within {MIRROR:.0%} of ConstRR, averaged over the levels, "
    "both with their intervals over seeds; no if an interval lies beyond its mark; open otherwise. Controls: ridge has "
    "the printed losses, the three models are as good as the paper's, and no loss is below that of Bayes. Regime: "
    f"d = 10, n = 20, sigma uniform from 0 to {TOP:g}",
    answers={YES: "Yes, from three layers on", NO: "No, depth or GD++ behaves otherwise"},
    change="five seeds whose worst level stays above half of that of two layers, or a GD++ that leaves ConstRR",
    units=units,
    read=read,
)
