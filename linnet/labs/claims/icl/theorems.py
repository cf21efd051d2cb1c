"""The theorems in numbers: each statement of the paper, and the identities around it, against a bound.

    row    config: the name of a check of `linnet icl verify`, a seed      metrics: its numbers, bounds and passes

Vladymyrov et al. 2024 (arXiv:2402.14180), theorems 4.1, 4.2, 5.1, 5.2 and their lemmas; no model is trained. A bound is
1e-10 for an identity in float64; a rate or an inequality has its own bound. Wrong published forms, which must miss
theirs, are the control: checks that cannot fail would show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Control,
    Evidence,
    Finding,
    Number,
    Setting,
    Table,
    Unit,
    unit,
    untested,
)
from ...core.results import Row
from ...icl import verify
from ...icl.verify_check import EXACT
from .controls import counted

EXPERIMENT = "icl-theorems"
SECONDS = {"one-layer": 1.0, "gd++-bound": 3.0, "theorem-5.2": 2.0}
Checked = tuple[Config, dict[str, Any]]
LONGEST = ("one-layer", "gd++-bound", "theorem-5.2", "theorem-4.2")  # left out of a smoke run
WRONG = "wrong-forms"
SEEDS = {"smoke": 1, "quick": 1, "hour": 3, "paper": 5}


def measure(config: Config) -> dict[str, Any]:
    return {"checks": [check.as_dict() for check in verify.run([config["check"]], config["seed"])]}


def units(setting: Setting) -> list[Unit]:
    names = [name for name in verify.CHECKS if setting.budget != "smoke" or name not in LONGEST]
    wanted = [(name, seed) for name in names for seed in range(SEEDS[setting.budget])]
    return [
        unit(measure, {"experiment": EXPERIMENT, "check": name, "seed": seed}, SECONDS.get(name, 0.3))
        for name, seed in wanted
    ]


def read(rows: Sequence[Row]) -> Finding:
    there = {row["config"]["check"] for row in rows}
    absent = [name for name in verify.CHECKS if name not in there]
    if absent:
        return untested(f"{len(absent)} of {len(verify.CHECKS)} groups of checks have no row, {absent[0]} among them")
    every = [(row["config"], check) for row in rows for check in row["metrics"]["checks"]]
    wrong = [(config, check) for config, check in every if config["check"] == WRONG]
    checks = [(config, check) for config, check in every if config["check"] != WRONG]
    failed = [(config, check) for config, check in checks if not check["passed"]]
    exact = [check["value"] for _, check in checks if check["bound"] == EXACT and check["value"] is not None]
    seeds = {config["seed"] for config, _ in checks}
    state = state_of(failed, seeds)
    good = len(checks) - len(failed)
    numbers = [
        Number("checks of the theorems that keep their bound", "all, as theorems", good, unit=f"of {len(checks)}"),
        Number("largest relative error of an identity that should be exact", "0", max(exact)),
    ]
    sentence = f"{good} of {len(checks)} checks keep their bound, drawn from {counted(len(seeds))}"
    broken = dict.fromkeys(f"{config['check']} ({check['statement']})" for config, check in failed)
    sentence += f"; these do not: {'; '.join(broken)}" if broken else f"; identities agree to {max(exact):.0e}"
    scope = f"random models and sequences, float64, {counted(len(seeds))}"
    evidence = Evidence(state, controls=[told_apart(wrong)])
    return Finding(evidence, sentence, numbers, scope, _meaning(state), [_table(every)], [_chart(checks)])


def state_of(failed: Sequence[Checked], seeds: set[int]) -> str:
    """Return NO if a check fails whatever is drawn, OPEN if one fails with some draws, otherwise YES."""
    drawn: dict[tuple[str, str], set[int]] = {}
    for config, check in failed:
        drawn.setdefault((config["check"], check["statement"]), set()).add(config["seed"])
    if not drawn:
        return YES
    return NO if seeds in drawn.values() else OPEN


def told_apart(wrong: Sequence[Checked]) -> Control:
    """Return the control that the published forms that are wrong fail where the right ones pass."""
    caught = sum(check["passed"] for _, check in wrong)
    least = min((check["value"] for _, check in wrong), default=0.0)
    detail = (
        f"{caught} of {len(wrong)} wrong forms found in print are off, the nearest by {least:.2g}; right ones are off "
        f"by {EXACT:g} at most"
    )
    return Control("wrong forms fail the checks", 0 < len(wrong) == caught, detail, "wrong forms pass the checks")


def _meaning(state: str) -> str:
    if state != YES:
        return "A statement that fails here is either wrong or wrongly understood: do not build on it."
    return (
        "A linear transformer of any depth is an optimiser for one linear rule and can be read layer by layer. The "
        "other side of the same theorems: its answer is always linear in the query, so it cannot learn a curved rule "
        "in context however many layers it has."
    )


def _table(checks: Sequence[Checked]) -> Table:
    first = [(config, check) for config, check in checks if config["seed"] == 0]
    body = [
        (c["check"], check["statement"], _short(check["value"]), f"{check['relation']} {_short(check['bound'])}",
         "holds" if check["passed"] else "fails")
        for c, check in first
    ]  # fmt: skip
    return Table(("check", "statement", "value", "bound", ""), body, "every check, with its bound")


def _chart(checks: Sequence[Checked]) -> Chart:
    """Draw the worst check of each group next to its bound, where the value must be small."""
    worst: dict[str, tuple[float, float]] = {}
    for config, check in checks:
        value, bound, name = check["value"], check["bound"], config["check"]
        if check["relation"] == "<=" and value and value > 0 and bound > 0:
            worst[name] = max(worst.get(name, (0.0, 1.0)), (value, bound), key=lambda pair: pair[0] / pair[1])
    series = {
        "found": [(name, value) for name, (value, _) in worst.items()],
        "allowed": [(name, bound) for name, (_, bound) in worst.items()],
    }
    caption = "The check of each group that comes nearest to its bound; lower is better, and below the bound it holds."
    return Chart("errors beside their bounds", "check", "value", series, kind="bars", log_y=True, caption=caption)


def _short(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


CLAIM = Claim(
    name="theorems",
    number="",
    place=3,
    paper="icl",
    statement="The theorems about what a linear transformer computes hold when they are put into numbers.",
    source="Each layer keeps one linear rule and improves it (theorem 4.1, lemmas 4.3 and 4.4); a square cannot be "
    "represented (4.2); the GD++ form reaches least squares in O(log condition number + log log 1/error) layers (5.1); "
    "two DIAG layers reach ridge regression for two noise levels as the examples grow (5.2). These are proofs: the "
    "paper prints no number to compare with.",
    rule=f"yes if every check keeps its bound ({EXACT:g} for identities) with every seed; no if one misses it with "
    "every seed; open if one misses it with some. A statement about every size. Control: wrong forms in print miss the "
    "bounds that the right ones keep",
    answers={YES: "Yes, every one of them", NO: "No, one of them fails"},
    change="a random model or sequence for which an identity is off by more than rounding",
    units=units,
    read=read,
)
