"""The results of the few-shot models: a value for each question, and a table and bars with the paper's numbers.

    right["piqa"] = "0110..."    one row's questions in order, 1 where the answer was right

A question's value is the mean of its rows, which differ in seed. Every row has the same questions in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import pstdev
from typing import Any

from ...core.claim import Chart, Row, Table
from ...core.intervals import interval

PAPER = {  # accuracy in percent as printed: Based, ReBased
    "winogrande": (50.4, 54.6),
    "piqa": (62.1, 62.8),
    "hellaswag": (30.8, 30.7),
    "arc_easy": (40.4, 41.0),
    "arc_challenge": (22.9, 21.5),
}
MEANS = (41.3, 42.1)
TITLES = {
    "softmax": "softmax",
    "based": "Based",
    "rebased": "ReBased",
    "stories15M": "stories15M",
    "stories260K": "stories260K",
}


def values(rows: Sequence[Row], sets: Sequence[str] = tuple(PAPER)) -> list[float]:
    """Return, for each question of the sets in order, the mean over the rows of 1 where the answer was right."""
    each = ["".join(row["metrics"]["right"][name] for name in sets) for row in rows]
    return [sum(map(int, of_one)) / len(rows) for of_one in zip(*each, strict=True)]


def beyond_chance(rows: Sequence[Row]) -> list[float]:
    right, chance = rows[0]["metrics"]["right"], rows[0]["metrics"]["chance"]
    guesses = [chance[name] for name in PAPER for _ in right[name]]
    return [value - guess for value, guess in zip(values(rows), guesses, strict=True)]


def differences(rows: Sequence[Row], others: Sequence[Row]) -> list[float]:
    """Return the differences question by question."""
    return [one - other for one, other in zip(values(rows), values(others), strict=True)]


def table_of(models: dict[str, list[Row]]) -> Table:
    first = next(iter(models.values()))[0]["metrics"]
    chance = [first["chance"][name] for name in PAPER]
    lines = [("chance", *(f"{100 * x:.1f}" for x in [*chance, sum(chance) / len(chance)]), "-")]
    for name, rows in models.items():
        title = f"{TITLES[name]} ({len(rows)} seeds)" if len(rows) > 1 else TITLES[name]
        cells = [_cell(values(rows, [one])) for one in PAPER]
        cut = sum(rows[0]["metrics"]["cut"].values()) / len(values(rows))
        lines.append((title, *cells, _cell(values(rows)), f"{cut:.0%}"))
    for place, name in enumerate(("Based", "ReBased")):
        printed = [f"{pair[place]:.1f}" for pair in PAPER.values()]
        lines.append((f"{name}, the paper's at 150 million", *printed, f"{MEANS[place]:.1f}", "-"))
    head = ("model", *PAPER, "mean", "questions that lost their start")
    questions = len(first["right"]["piqa"])
    return Table(head, lines, f"percent right after one example, {questions} questions of each set, and standard error")


def _cell(right: list[float]) -> str:
    mean = sum(right) / len(right)
    return f"{100 * mean:.1f} ± {100 * pstdev(right) / max(1, len(right) - 1) ** 0.5:.1f}"


def chart_of(models: dict[str, list[Row]]) -> Chart:
    chance = next(iter(models.values()))[0]["metrics"]["chance"]
    series: dict[str, list[tuple[Any, ...]]] = {"chance": [(name, 100 * chance[name]) for name in PAPER]}
    for model, rows in models.items():
        accuracy = {name: interval(values(rows, [name])) for name in PAPER}
        series[TITLES[model]] = [(name, *(100 * x for x in of_it[:3])) for name, of_it in accuracy.items()]
    series["Based, the paper's"] = [(name, pair[0]) for name, pair in PAPER.items()]
    series["ReBased, the paper's"] = [(name, pair[1]) for name, pair in PAPER.items()]
    return Chart("Questions answered after one example", "", "percent right", series, kind="bars")
