"""One sentence per layer, from its numbers by fixed rules: a clause appears when its number passes a threshold.

    rounds / stretches the bowl     the condition number changes by ROUND (not in the last layer: nothing reads x)
    takes a step of ...             the answer moves by MOVES of the ridge oracle's length; else "hardly moves"
    momentum takes back / brings    u makes up MOMENTUM of the rest of the step at the highest noise
    shrinks / enlarges              1 + omega_yy lambda is RESCALE from 1; in layer 1 of the labels, since w is 0
    makes later steps shorter       1 + omega_xy lambda is ADAPT from 1 (not in the last layer)

Low noise is the first entry of Layer.at, high noise the last. Where the two nearly agree, one value is given.
"""

from __future__ import annotations

from .explain_layers import AtSigma, Layer

ROUND = 1.1  # ratio of condition numbers
MOVES = 0.02  # of the length of the oracle's answer
MOMENTUM = 0.05
RESCALE = 0.01
ADAPT = 0.02
APART = 0.02  # two changes, as factors, that differ by less are merged
STEPS_APART = 0.1  # likewise two steps, relative


def describe(layer: Layer) -> str:
    """Return what the layer does in one sentence."""
    low, high = layer.at[0], layer.at[-1]
    clauses = [_bowl(low) if "xx" not in layer.dead else "", _step(low, high)]
    if "yy" not in layer.dead:
        clauses.append(_rescale("the labels" if layer.number == 1 else "the answer", low, high))
    if "xy" not in layer.dead:
        clauses.append(_adapt(low, high))
    parts = [clause for clause in clauses if clause]
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"
    return f"{text[0].upper()}{text[1:]}."


def _bowl(low: AtSigma) -> str:
    ratio = low.condition / low.condition_after
    if 1 / ROUND < ratio < ROUND:
        return ""
    verb = "rounds" if ratio > 1 else "stretches"
    return f"{verb} the bowl (condition {low.condition:.3g} -> {low.condition_after:.3g})"


def _step(low: AtSigma, high: AtSigma) -> str:
    if max(low.moved, high.moved) < MOVES:
        return "hardly moves the answer"
    text = f"{'takes a step of' if low.step >= 0 else 'steps back by'} {abs(low.step):.3g}"
    if abs(high.step - low.step) > STEPS_APART * abs(low.step):
        other = "" if low.step * high.step >= 0 else "takes one of " if high.step > 0 else "steps back by "
        text += f" when sigma = {low.sigma:g} but {other}{abs(high.step):.3g} when sigma = {high.sigma:g}"
    return text + _momentum(high)


def _momentum(high: AtSigma) -> str:
    rest = high.step - high.momentum  # what the step would be without u
    share = high.momentum / rest if rest else 0.0
    if abs(share) < MOMENTUM:
        return ""
    what = "turns it round" if share < -1 else f"{'takes back' if share < 0 else 'adds'} {_percent(share)} of it"
    return f" (momentum {what} when sigma = {high.sigma:g})"


def _rescale(what: str, low: AtSigma, high: AtSigma) -> str:
    least, most = low.rescale - 1, high.rescale - 1
    if max(abs(least), abs(most)) < RESCALE:
        return ""
    because = ", because the labels look noisy" if -1 <= most < min(0.0, least - APART) else ""
    return f"{_changes(least, most, low, high, ('shrinks', 'enlarges'), what)}{because}"


def _adapt(low: AtSigma, high: AtSigma) -> str:
    least, most = low.adapt - 1, high.adapt - 1
    if max(abs(least), abs(most)) < ADAPT:
        return ""
    return _changes(least, most, low, high, ("shortens", "lengthens"), "the steps to come")


def _changes(least: float, most: float, low: AtSigma, high: AtSigma, verbs: tuple[str, str], what: str) -> str:
    """Describe how `what` changes, at both noise levels where they differ."""
    text = _change(most, verbs, what)
    if abs(most - least) < APART:
        return text
    same = min(most, least) >= -1 and most * least >= 0
    other = _percent(least) if same else _change(least, verbs, "it" if what == "the answer" else "them")
    return f"{text} when sigma = {high.sigma:g} but {other} when sigma = {low.sigma:g}"


def _change(change: float, verbs: tuple[str, str], what: str) -> str:
    """Describe a change; below -1 the factor is negative and the sign flips."""
    if change < -1:
        return f"turns {what} round"
    return f"{verbs[0] if change < 0 else verbs[1]} {what} by {_percent(change)}"


def _percent(share: float) -> str:
    return f"{100 * abs(share):.0f} %"
