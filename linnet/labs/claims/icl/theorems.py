"""Do the theorems hold numerically? Each statement of the paper, and the identities around it, against a bound.

    row    config: the name of a check of `linnet icl verify`, a seed      metrics: its numbers, bounds and passes

Vladymyrov et al. 2024 (arXiv:2402.14180), theorems 4.1, 4.2, 5.1, 5.2 and their lemmas; no model is trained. A bound is
1e-10 for an identity in float64; a rate or an inequality has its own bound. Wrong published forms must
miss theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.claim import (
    CONFIRMED,
    REFUTED,
    Chart,
    Claim,
    Config,
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

EXPERIMENT = "icl-theorems"
SECONDS = {"one-layer": 1.0, "gd++-bound": 3.0, "theorem-5.2": 2.0}
LONGEST = ("one-layer", "gd++-bound", "theorem-5.2", "theorem-4.2")  # left out of a smoke run
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
    checks = [(row["config"], check) for row in rows for check in row["metrics"]["checks"]]
    failed = [f"{config['check']} ({check['statement']})" for config, check in checks if not check["passed"]]
    exact = [check["value"] for _, check in checks if check["bound"] == EXACT and check["value"] is not None]
    seeds = len({config["seed"] for config, _ in checks})
    numbers = [
        Number(
            "checks of the theorems that hold", "all, as theorems", len(checks) - len(failed), unit=f"of {len(checks)}"
        ),
        Number("largest relative error of an identity that should be exact", "0", max(exact)),
    ]
    drawn = f"drawn from {seeds} seeds" if seeds > 1 else "drawn from one seed"
    sentence = f"{len(checks) - len(failed)} of {len(checks)} checks keep their bound, {drawn}"
    sentence += f"; these do not: {'; '.join(failed)}" if failed else f"; identities agree to {max(exact):.0e}"
    return Finding(
        REFUTED if failed else CONFIRMED, sentence, numbers, _meaning(bool(failed)), [_table(checks)], [_chart(checks)]
    )


def _meaning(failed: bool) -> str:
    if failed:
        return "A statement that fails here is either wrong or wrongly understood: do not build on it."
    return (
        "A linear transformer of any depth is an optimiser for one linear rule and can be read layer by layer. The "
        "other side of the same theorems: its answer is always linear in the query, so it cannot learn a curved rule "
        "in context however many layers it has."
    )


def _table(checks: Sequence[tuple[Config, dict[str, Any]]]) -> Table:
    first = [(config, check) for config, check in checks if config["seed"] == 0]
    body = [
        (c["check"], check["statement"], _short(check["value"]), f"{check['relation']} {_short(check['bound'])}",
         "holds" if check["passed"] else "fails")
        for c, check in first
    ]  # fmt: skip
    return Table(("check", "statement", "value", "bound", ""), body, "every check, with its bound")


def _chart(checks: Sequence[tuple[Config, dict[str, Any]]]) -> Chart:
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
    question="Do the theorems about what linear transformers compute hold when they are put into numbers?",
    statement="Each layer keeps one linear rule and improves it (theorem 4.1, lemmas 4.3 and 4.4); a square cannot be "
    "represented (4.2); the GD++ form reaches least squares in O(log condition number + log log 1/error) layers (5.1); "
    "two DIAG layers reach ridge regression for two noise levels as the examples grow (5.2). These are proofs: the "
    "paper prints no number to compare with.",
    rule=f"confirmed if every check keeps its bound ({EXACT:g} for identities) and every wrong form in print misses "
    "its own; refuted if one does not",
    units=units,
    read=read,
)
