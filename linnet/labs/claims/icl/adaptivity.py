"""Does the model find out how noisy its examples are? Its loss at each noise level, held fixed.

    worst(model) = the largest loss above the oracle over sigma in 0..5, the levels of the training

Vladymyrov et al. 2024 (arXiv:2402.14180), figure 2. ConstRR has one penalty: right at one sigma, far off at the others.
A model that adapts is flat. GD++ is a fixed filter of the inputs and cannot adapt; ConstRR is the best of those, so
GD++ should become ConstRR, level by level. Trained on U5, sigma uniform from 0 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from ...icl.noise import Noise
from .chains import NAMED, UNIFORM, cells, chains, profiles, rule_profile, rules, too_few

FLATTER = 0.5  # worst loss of three layers, of that of two
MIRROR = 0.1  # how far GD++ may be from ConstRR, of ConstRR's mean over the levels
TOP = Noise.parse(UNIFORM).largest
RULES = ("ada_rr", "tuned_rr", "bayes")
SHOWN = ("DIAG 2", "DIAG 3", "DIAG 7", "FULL 7", "GD++ 3", "ConstRR", "AdaRR", "TunedRR", "Bayes")
Profile = dict[float, dict[str, Any]]


def units(setting: Setting) -> list[Unit]:
    return [*chains(setting, [UNIFORM]), *rules(setting, [UNIFORM], RULES), rule_profile(setting, UNIFORM)]


def read(rows: Sequence[Row]) -> Finding:
    early = too_few(rows)
    if early:
        return early
    curves = {name: _inside(curve) for name, curve in profiles(rows, UNIFORM).items()}
    absent = [name for name in ("DIAG 2", "DIAG 3", "GD++ 3", "ConstRR") if not curves.get(name)]
    if absent:
        return untested(f"{absent[0]} has no profile yet")
    two, three = worst(curves["DIAG 2"]), worst(curves["DIAG 3"])
    off = mirror(curves["GD++ 3"], curves["ConstRR"])
    flatter, mirrored = three <= FLATTER * two, off <= MIRROR
    outcome = CONFIRMED if flatter and mirrored else UNCLEAR if flatter or mirrored else REFUTED
    beats = overtaken(rows)
    sentence = (
        f"worst loss over sigma 0 to {TOP:g}: DIAG {figures(two)} with 2 layers and {figures(three)} with 3, ConstRR "
        f"{figures(worst(curves['ConstRR']))}; GD++ with 3 layers differs from ConstRR by {off:.1%} of its mean loss; "
        + "; ".join(f"DIAG is below {name} {_from(layers, deepest)}" for name, layers, deepest in beats)
    )
    numbers = [
        _ratio(
            "worst loss over the noise levels, DIAG with 3 layers / with 2 layers", curves["DIAG 3"], curves["DIAG 2"]
        ),
        _ratio(
            "worst loss over the noise levels, DIAG with 3 layers / ridge with one penalty (ConstRR)",
            curves["DIAG 3"],
            curves["ConstRR"],
        ),
        Number(
            "distance of GD++ with 3 layers from ConstRR, mean over the levels, of ConstRR's loss",
            "looks the same in figure 2",
            off,
        ),
    ]
    numbers += [
        Number(f"layers from which DIAG is below {name} on {UNIFORM}", printed, layers)
        for (name, layers, _), printed in zip(beats, ("4", "5, to match or exceed", None), strict=False)
        if layers is not None
    ]
    return Finding(outcome, sentence, numbers, _meaning(flatter, three, curves), [_table(curves)], [_chart(rows)])


def worst(curve: Profile) -> float:
    return max(float(level["mean"]) for level in curve.values())


def _ratio(what: str, curve: Profile, other: Profile) -> Number:
    """Return the ratio of the worst losses, with an interval from two standard errors of each."""
    (top, top_se), (bottom, bottom_se) = (
        max((level["mean"], level["se"]) for level in c.values()) for c in (curve, other)
    )
    low, high = (top - 2 * top_se) / (bottom + 2 * bottom_se), (top + 2 * top_se) / (bottom - 2 * bottom_se)
    return Number(what, None, top / bottom, low, high, "two standard errors of each")


def mirror(curve: Profile, other: Profile) -> float:
    """Return the mean difference over the levels, relative to the mean of the other."""
    both = sorted(set(curve) & set(other))
    apart = sum(abs(curve[sigma]["mean"] - other[sigma]["mean"]) for sigma in both)
    return float(apart / sum(other[sigma]["mean"] for sigma in both))


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
    return f"from {layers} layers" if layers is not None else f"at none of its depths up to {deepest}"


def _inside(curve: Profile) -> Profile:
    return {sigma: level for sigma, level in curve.items() if sigma <= TOP and level["mean"] is not None}


def _meaning(flatter: bool, three: float, curves: dict[str, Profile]) -> str:
    if not flatter:
        return "A third layer does not make the model adapt here: for noise that varies take ridge with an estimate."
    text = "Three layers of DIAG judge the noise from the labels: one model serves clean and noisy data alike."
    if "AdaRR" in curves:
        better = three < worst(curves["AdaRR"])
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
    question="Does a linear transformer judge from its examples how noisy they are, and trust them accordingly?",
    statement="With two layers the models suit one noise level only; from three layers on they improve over the whole "
    "range, while GD++ stays at ridge with one fixed penalty (figure 2 of the paper, which prints no numbers for it). "
    "The paper's text says that four layers beat AdaRR where sigma goes up to 4 or more, and that five or more match "
    "or exceed TunedRR.",
    rule=f"confirmed if the worst loss over the noise levels of the training falls to {FLATTER:g} times or less from "
    f"two layers of DIAG to three, and GD++ with three layers is within {MIRROR:.0%} of ConstRR, level by level; "
    "refuted if neither holds; unclear if one does",
    units=units,
    read=read,
)
