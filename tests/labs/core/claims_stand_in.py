"""Claims for the tests, in a module that a worker can import: exact, in milliseconds, and able to fail."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from linnet.labs.core.claim import (
    DAY,
    NO,
    YES,
    Chart,
    Claim,
    Evidence,
    Finding,
    Heat,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    number,
    unit,
)


def square(config: dict[str, Any]) -> dict[str, Any]:
    """config["i"] squared; fails or waits where the environment says so."""
    if os.environ.get("FAIL_AT") == str(config["i"]):
        raise RuntimeError(f"no square of {config['i']}")
    if os.environ.get("WAIT_AT") == str(config["i"]):
        time.sleep(600)
    return {"square": config["i"] ** 2, "seed": config["seed"]}


def squares(name: str, top: int, alone: bool = False, seconds: float = 0.01) -> Callable[[Setting], list[Unit]]:
    def units(setting: Setting) -> list[Unit]:
        count = top * (2 if setting.budget == "hour" else 1)
        configs = [{"experiment": name, "i": i, "seed": i % 3} for i in range(count)]
        return [unit(square, config, seconds, alone) for config in configs]

    return units


def read(rows: Sequence[Row]) -> Finding:
    result = [float(row["metrics"]["square"]) for row in rows]
    right = all(row["metrics"]["square"] == row["config"]["i"] ** 2 for row in rows)
    numbers = [number("mean of the squares", "2.5", result), Number("largest", None, max(result), unit="s")]
    table = Table(("i", "square"), [(str(row["config"]["i"]), str(row["metrics"]["square"])) for row in rows], "all")
    curve = Chart("squares", "i", "i²", {"ours": [(row["config"]["i"], row["metrics"]["square"]) for row in rows]})
    heat = Heat("shares", ["a"], ["b", "c"], [[0.5, None]])
    evidence, scope = Evidence(YES if right else NO), f"{len(rows)} numbers"
    return Finding(evidence, "they are squares", numbers, scope, "Take squares.", (table,), (curve, heat))


def made(
    name: str,
    paper: str,
    top: int = 3,
    alone: bool = False,
    rows_of: str = "",
    seconds: float = 0.01,
    number: str = "",
) -> Claim:
    what = f"The numbers of {name} are squares."
    units = squares(rows_of or name, top, alone, seconds)
    answers = {YES: "Yes, all of them", NO: "No, one is not"}
    change = "A number that is no square."
    return Claim(name, number, paper, what, "the paper gives no number", "all of them", answers, change, units, read)


CLAIMS = {
    claim.name: claim
    for claim in (made("plain", "rnn"), made("timed", "rnn", alone=True), made("shared", "icl", rows_of="plain"))
}


def staged(name: str, paper: str = "rnn", seconds: float = 0.01) -> Claim:
    """A claim with a day run: of 1 and 2, the number with the larger square decides what the first stage reports."""

    def units(setting: Setting) -> list[Unit]:
        if setting.budget != DAY:
            return squares(name, 3)(setting)
        searched = [{"experiment": name, "i": i, "seed": i % 3} for i in (1, 2)]
        rows = [setting.row(config) for config in searched]
        best = max((row["metrics"]["square"] ** 0.5 for row in rows if row is not None), default=0)
        ready = all(row is not None for row in rows)
        reports = [{"experiment": name, "i": int(10 * best) + i if ready else 90 + i, "seed": i} for i in range(2)]
        found = [replace(unit(square, config, seconds), waits=False) for config in searched]
        found += [replace(unit(square, config, seconds), waits=not ready) for config in reports]
        return [*found, replace(unit(square, {"experiment": name, "i": 30, "seed": 0}, seconds), stage=1)]

    return replace(made(name, paper), units=units, day=True)
