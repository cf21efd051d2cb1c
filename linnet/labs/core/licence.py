"""Decide which outcome a rule's answer may be printed as: a verdict needs its regime, its controls and enough seeds.

    outcome, reason = licence(Evidence(state, regime, controls, seeds))

    a control failed                                 not tested here    saturated, unlearned, noisy: nothing is decided
    inside the regime, 5 seeds or more               holds, does not hold, too close to call
    outside the regime, 3 seeds or more              seen here, not seen here: "at this size", and counted apart

Every claim passes through here (linnet/labs/claims/document.py); a claim cannot set its own outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from .verdicts import CLOSE, FAILS, HOLDS, NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES

SEEDS, FEW = 5, 3  # repetitions that a verdict needs, and that "seen here" needs
CEILING = 0.99  # a rival at or above this share of the possible score cannot be beaten
FACTOR = 2.0  # how far a size may be from the paper's range and still count as its regime
STILL = 0.05  # relative fall of a loss over the last quarter of its training that still counts as converged
QUIET = "the machine was quiet"  # the name of that control
RISE = 0.02  # rise of a recall over the last quarter of its training that still counts as converged
NOISE = 0.25  # largest relative spread (quartiles) of the rounds of a timing


@dataclass(frozen=True)
class Control:
    """A check without which a comparison decides nothing, and whether these rows pass it."""

    name: str  # "softmax learned the task"
    passed: bool
    detail: str  # with its numbers: "softmax recalls 0.05; the floor is 0.9"
    short: str  # at most five words, shown after "Not tested: " where it failed: "softmax did not learn"
    always: bool = True  # False: asked of verdicts inside the regime only, reported elsewhere


@dataclass(frozen=True)
class Regime:
    """The sizes that a statement is about, ours, and which of ours lie outside them."""

    paper: str = ""  # "256 to 2,048 tokens, width 16 to 64"; "" for a statement about every size
    here: str = ""
    outside: tuple[str, ...] = ()  # "48 tokens (the paper has 256 to 2,048)"; empty inside


EVERYWHERE = Regime()


@dataclass(frozen=True)
class Evidence:
    """What a claim brings before the licence."""

    state: str  # YES, NO or OPEN by the rule; UNTESTED where the rule lacks rows
    regime: Regime = EVERYWHERE
    controls: Sequence[Control] = field(default=())
    repeats: int | None = None  # independent repetitions behind the deciding interval; None: nothing is drawn at random
    of: str = "seeds"


class Licensed(NamedTuple):
    """The outcome, why it is not more, and that in at most five words; "" where nothing was held back."""

    outcome: str
    reason: str = ""
    short: str = ""


def licence(evidence: Evidence) -> Licensed:
    """Return the outcome that may be printed."""
    outside = evidence.regime.outside
    asked = [control for control in evidence.controls if control.always or not outside]
    failed = [control for control in asked if not control.passed]
    fewest = FEW if outside else SEEDS
    if evidence.state == UNTESTED:
        return Licensed(UNTESTED, "", "rows are missing")
    if failed:
        return Licensed(UNTESTED, "; ".join(control.detail for control in failed), failed[0].short)
    if evidence.repeats is not None and evidence.repeats < fewest:
        few = f"{evidence.repeats} {evidence.of}, {fewest} needed"
        return Licensed(UNTESTED, few, few)
    if outside:
        why = f"outside the statement's regime: {'; '.join(outside)}"
        if evidence.state == OPEN:
            return Licensed(UNTESTED, f"{why}, and undecided at this size", "undecided at this size")
        return Licensed(SEEN if evidence.state == YES else NOT_SEEN, why)
    return Licensed({YES: HOLDS, NO: FAILS, OPEN: CLOSE}[evidence.state])


def regime(paper: str, here: str, factor: float = FACTOR, **axes: tuple[float, float, float]) -> Regime:
    """Return the regime of rows. axes: name=(ours, least, most of the paper); underscores in names are spaces.

    A size counts as inside from least / factor to most x factor.
    """
    outside = []
    for name, (ours, least, most) in axes.items():
        if not least / factor <= ours <= most * factor:
            wanted = f"{least:,g}" if least == most else f"{least:,g} to {most:,g}"
            outside.append(f"{name.replace('_', ' ')} {ours:,g} (the paper has {wanted})")
    return Regime(paper, here, tuple(outside))


def learned(who: str, score: float, floor: float, what: str = "recall") -> Control:
    """Return the control that a baseline learned its task: its score reaches a floor."""
    detail = f"{who} reaches a {what} of {score:.3g}; the floor is {floor:g}"
    return Control(f"{who} learned the task", score >= floor, detail, f"{who} did not learn")


def room(rivals: Mapping[str, float], ceiling: float = CEILING, what: str = "recall") -> Control:
    """Return the control that none of the rivals that a variant must beat is at its ceiling."""
    full = [name for name, score in rivals.items() if score >= ceiling]
    highest = max(rivals, key=lambda name: rivals[name])
    detail = (
        f"{highest} reaches a {what} of {rivals[highest]:.3g}; at {ceiling:g} or more too little is left to be ahead by"
    )
    return Control("the task is not too easy", not full, detail, "too easy")


def converged(who: str, curves: Sequence[Sequence[Sequence[float]]], still: float = STILL) -> Control:
    """Return the control that no held-out loss still falls by more than `still` over the last quarter of its steps.

    curves: one per seed, [[step, loss], ...].
    """
    name, short = f"{who} converged", f"{who} had not converged"
    falls = [_fall(curve) for curve in curves]
    if not falls or any(fall is None for fall in falls):
        return Control(name, False, f"no curve of {who} was kept, so convergence cannot be shown", short, always=False)
    most = max(fall for fall in falls if fall is not None)
    detail = (
        f"the loss of {who} falls by {100 * max(most, 0.0):.1f} % over the last quarter; {100 * still:g} % is accepted"
    )
    return Control(name, most <= still, detail, short, always=False)


def settled(
    who: str, curves: Sequence[Sequence[Sequence[float]]], still: float = RISE, what: str = "recall"
) -> Control:
    """Return the control that no score still rises by more than `still` over the last quarter of its steps.

    curves: one per run, [[step, score], ...]; for scores such as accuracies, where `converged` is for losses.
    """
    name, short = f"{who} converged", f"{who} had not converged"
    rises = [_change(curve) for curve in curves]
    if not rises or any(rise is None for rise in rises):
        return Control(name, False, f"no curve of {who} was kept, so convergence cannot be shown", short, always=False)
    most = max(rise for rise in rises if rise is not None)
    detail = f"the {what} of {who} rises by {max(most, 0.0):.3f} at most over the last quarter; {still:g} is accepted"
    return Control(name, most <= still, detail, short, always=False)


def _change(curve: Sequence[Sequence[float]]) -> float | None:
    """Return the change of a value over the last quarter of its steps; None where the curve is too short."""
    before = _before(curve)
    return None if before is None else curve[-1][1] - before[1]


def _fall(curve: Sequence[Sequence[float]]) -> float | None:
    """Return the relative fall of a loss over the last quarter of its steps; None where the curve is too short."""
    before = _before(curve)
    return None if before is None or before[1] <= 0 else 1 - curve[-1][1] / before[1]


def _before(curve: Sequence[Sequence[float]]) -> Sequence[float] | None:
    """Return the last point of the first three quarters of the steps; None where the curve is too short."""
    if len(curve) < 4:
        return None
    start = curve[-1][0] * 0.75
    return max((point for point in curve if point[0] <= start), key=lambda point: point[0], default=None)


def quiet(rounds: Mapping[str, Sequence[float]], noise: float = NOISE) -> Control:
    """Return the control that the machine was quiet: the quartiles of each timing's rounds are near its median."""
    spreads = {name: _spread(seconds) for name, seconds in rounds.items() if len(seconds) > 1}
    worst = max(spreads, key=lambda name: spreads[name], default="")
    most = spreads.get(worst, 0.0)
    detail = (
        f"half of the rounds of {worst} lie within {100 * most:.0f} % of their median; {100 * noise:.0f} % is accepted"
    )
    return Control(QUIET, most <= noise, detail, "the machine was too noisy")


def _spread(seconds: Sequence[float]) -> float:
    """Return half the distance of the quartiles over the median."""
    x = sorted(seconds)
    low, high = median(x[: (len(x) + 1) // 2]), median(x[len(x) // 2 :])
    return (high - low) / 2 / median(x)
