"""Table 1: can models trained in seconds on a CPU match what the paper trained for hours on an H100?

    mark of a cell    better, equal, worse: ours - paper beyond two standard errors or not (icl/table_compare.py)
                      unclear: the error is too large to tell     impossible: no model can have the printed value

Vladymyrov et al. 2024 (arXiv:2402.14180), FULL, DIAG and GD++ at 1 to 7 layers on 10 distributions of noise, the best
of five seeds. The rows are those of `linnet icl table`: a part of it in "quick", all 210 cells in "hour". That a model
can be trained is shown by one that was, on 100,000 sequences; that none can takes the paper's five seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....regress.model import KINDS
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
    untested,
)
from ...core.results import Row
from ...icl.paper import NAMES, TABLE1
from ...icl.table_compare import document
from ...icl.table_units import BASELINES, EXPERIMENT
from .chains import NAMED, ROUNDED, UNIFORM, chains, rules, too_few
from .controls import CHANCE, bounded, counted, named, one_layer, protocol, regime_of, seeds_of, sequences_of

# Shares of the cells: equal or better, and worse. Set when one whole table of ours was already known.
ENOUGH, MANY = 0.9, 0.1
LEAST = 8  # cells that a share may be taken of
LINES = ("ada_rr", "tuned_rr", "bayes")
SIGNS = {"better": "<", "equal": "=", "worse": ">", "unclear": "?", "impossible": "*", None: ""}
Cells = Sequence[dict[str, Any]]


def units(setting: Setting) -> list[Unit]:
    if setting.budget in ("smoke", "quick"):
        return chains(setting) + rules(setting, [UNIFORM], LINES)
    return chains(setting) + rules(setting, NAMES, BASELINES)


def read(rows: Sequence[Row]) -> Finding:
    rows = [row for row in rows if row["config"]["experiment"] == EXPERIMENT]
    early = too_few(rows)
    if early:
        return early
    content = document(list(rows), 0.0)
    cells, counts = content["cells"], content["counts"]
    possible = len(cells) - counts["impossible"]
    if possible < LEAST:
        return untested(f"{possible} cells have a row that can be compared, and a share wants {LEAST} or more")
    good = counts["better"] + counts["equal"]
    fine = good >= ENOUGH * possible and counts["worse"] <= CHANCE * possible
    state = YES if fine else NO if counts["worse"] > MANY * possible else OPEN
    whole = len(TABLE1)
    regime = regime_of(rows, f"{whole} models", f"{len(cells)} models", models=(len(cells), whole, whole))
    seeds, sequences = seeds_of(rows), sequences_of(rows)
    repeats, of = (sequences, "sequences") if state == YES else (seeds, "seed" if seeds == 1 else "seeds")
    evidence = Evidence(state, regime, [protocol(rows), one_layer(rows), bounded(rows)], repeats, of)
    scope = f"{regime.here}, {counted(seeds)} each, {sequences:,} sequences"
    numbers, sentence = _numbers(cells, counts, good, possible), _sentence(cells, counts, good, possible)
    tables = [_table(cells, content["baselines"]), _marks(counts)]
    return Finding(evidence, sentence, numbers, scope, _meaning(cells, state), tables, [_chart(content)])


def _numbers(cells: Cells, counts: dict[str, int], good: int, possible: int) -> list[Number]:
    numbers = [
        Number(
            "cells of the paper's Table 1 that ours equals or betters, of those a model can have",
            f"{len(TABLE1)} in all, the best of 5 seeds",
            good,
            unit=f"of {possible}",
        ),
        Number("cells that ours is worse in, beyond two standard errors", None, counts["worse"], unit=f"of {possible}"),
        Number("cells that no model can have in expectation as printed", None, counts["impossible"]),
    ]
    here = [cell for cell in cells if (cell["model"], cell["noise"]) == ("diag", UNIFORM)]
    deepest = max(here, key=_depth, default=None)
    if deepest is not None and deepest["sharp"] is not None:
        what = f"loss above the oracle, {_named(deepest)} on {UNIFORM}"
        low, high = (deepest["sharp"] + sign * 2 * deepest["sharp_se"] for sign in (-1, 1))
        of = f"{deepest['count']:,} sequences"
        numbers.append(Number(what, f"{deepest['paper']:.3f}", deepest["sharp"], low, high, of))
    return numbers


def _sentence(cells: Cells, counts: dict[str, int], good: int, possible: int) -> str:
    seconds = sum(seed["seconds"] for cell in cells for seed in cell["seeds"])
    text = (
        f"{good} of {possible} cells are equal to the paper's ({counts['equal']}) or better ({counts['better']}), "
        f"{counts['worse']} are worse, {counts['unclear']} too uncertain to tell; printed below what such a model can "
        f"have: {counts['impossible']} more; training and testing the {len(cells)} models took {seconds / 60:.0f} "
        "minutes of one thread"
    )
    worse = [f"{_named(cell)} on {cell['noise']}" for cell in cells if cell["mark"] == "worse"]
    return text + (f". Worse: {', '.join(worse[:6])}{' and more' if len(worse) > 6 else ''}" if worse else "")


def _meaning(cells: Cells, state: str) -> str:
    seconds = [seed["seconds"] for cell in cells for seed in cell["seeds"]]
    if state == NO:
        return "Our quick way of training falls behind the paper's: its table is not to be had this cheaply."
    text = f"Such a model takes {sum(seconds) / len(seconds):.0f} seconds of one thread on average, training and test"
    text += ", where the paper gives 4 to 12 hours of an H100"
    three = {cell["model"]: cell["sharp"] for cell in cells if (cell["layers"], cell["noise"]) == (3, UNIFORM)}
    if all(three.get(kind) is not None for kind in ("diag", "gd++")):
        text += (
            f". With noise that varies, the four numbers a layer of DIAG are worth having: {three['diag']:.3f} against "
            f"{three['gd++']:.3f} for plain gradient descent (GD++) at three layers"
        )
    return text + "."


def _table(cells: Cells, baselines: Cells) -> Table:
    """Return the trained part of the paper's table."""
    noises = [name for name in NAMES if any(cell["noise"] == name for cell in cells)]
    by = {(cell["layers"], cell["model"], cell["noise"]): cell for cell in cells}
    lines = sorted({(layers, KINDS.index(kind)) for layers, kind, _ in by}, key=lambda pair: (pair[0], -pair[1]))
    body = [
        (str(layers), NAMED[KINDS[kind]], *(_shown(by.get((layers, KINDS[kind], noise))) for noise in noises))
        for layers, kind in lines
    ]
    ridge = {(cell["model"], cell["noise"]): cell for cell in baselines}
    names = [name for name in BASELINES if any(model == name for model, _ in ridge)]
    body += [("-", NAMED[name], *(_shown(ridge.get((name, noise))) for noise in noises)) for name in names]
    title = "loss above the oracle: ours, < better = equal > worse ? cannot tell * impossible, (the paper's)"
    return Table(("layers", "model", *noises), body, title)


def _shown(cell: dict[str, Any] | None) -> str:
    if cell is None or cell["sharp"] is None:
        return "-"
    if cell["paper"] is None:
        return _short(cell["sharp"], 4)
    return f"{_short(cell['sharp'], 4)} {SIGNS[cell['mark']]} ({_short(cell['paper'], 3)})"


def _short(value: float, digits: int) -> str:
    if value < ROUNDED:
        return "0"
    return f"{value:.{digits}f}" if value >= 1e-3 else f"{value:.2e}"


def _marks(counts: dict[str, int]) -> Table:
    return Table(("mark", "cells"), [(mark, str(count)) for mark, count in counts.items()], "ours beside the paper's")


def _chart(content: dict[str, Any]) -> Chart:
    series: dict[str, list[tuple[float, ...]]] = {}
    here = [cell for cell in content["cells"] if cell["noise"] == UNIFORM and cell["sharp"] is not None]
    for cell in sorted(here, key=_depth):
        ours = (cell["layers"], cell["sharp"], *(cell["sharp"] + sign * 2 * cell["sharp_se"] for sign in (-1, 1)))
        series.setdefault(NAMED[cell["model"]], []).append(ours)
        series.setdefault(f"{NAMED[cell['model']]} paper", []).append((cell["layers"], cell["paper"]))
    ends = sorted({cell["layers"] for cell in here})
    for rule in content["baselines"]:
        if rule["noise"] == UNIFORM and rule["model"] in LINES and ends:
            series[NAMED[rule["model"]]] = [(ends[0], rule["sharp"]), (ends[-1], rule["sharp"])]
    caption = "Noise uniform from 0 to 5; lower is better, and nothing can be below Bayes."
    return Chart(f"loss by layers on {UNIFORM}", "layers", "loss above the oracle", series, log_y=True, caption=caption)


def _depth(cell: dict[str, Any]) -> int:
    return int(cell["layers"])


def _named(cell: dict[str, Any]) -> str:
    return named(cell["model"], cell["layers"])


CLAIM = Claim(
    name="table",
    number="",
    place=2,
    paper="icl",
    statement="Models that match nine of ten cells of the paper's main table can be trained on a CPU.",
    source="Three kinds of linear transformer learn to do regression in context, better with every layer: on noise "
    "uniform from 0 to 5 the paper prints .906 for DIAG with one layer, .118 with three and .047 with seven, the best "
    "of five seeds, each trained for 4 to 12 hours on an H100.",
    rule=f"of the cells whose printed value a model can have: yes if ours equals or betters the paper in "
    f"{ENOUGH:.0%} or more and is worse, beyond two standard errors, in no more than {CHANCE:.0%}, which is twice "
    f"what chance does; no if it is worse in more than {MANY:.0%}; open in between. One seed of each model can show a "
    "yes, as the models then exist: the sequences are its repeats; anything else takes the paper's five seeds. "
    "Controls: ridge has the printed losses, one layer its least possible loss, and no loss is below that of Bayes. "
    f"Regime: d = 10, n = 20, all {len(TABLE1)} models",
    answers={YES: "Yes, in nine of ten cells or more", NO: "No, too many cells are worse"},
    change=f"five seeds of every model that leave more than {MANY:.0%} of the cells worse than the paper's",
    units=units,
    read=read,
)
