"""`linnet bench regressors`: InContextRegressor beside scikit-learn's linear regressors.

The measuring is in linnet/bench/regressors.py; here are the options, the progress bar, the tables and the JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from . import doctor
from .bench import SEVERAL
from .bench_show import deliver, made_on, new_table, print_table, say_interrupted

FORMAT = 1  # of the JSON document
LESSON = """\
How well a pretrained linear transformer predicts from few rows and on a
stream, beside Ridge, RidgeCV, BayesianRidge, SGD and recursive least squares.

Tables: mean test R² over random draws of 20, 50, 200 rows and of four fifths
of the set, with 1.96 standard errors; in brackets the share of draws in which
the transformer was set aside for ridge. Streams: every hour is predicted, then
learned. Speed: microseconds to learn one more row, and to learn and predict.
* marks the best of a row and all that are not clearly behind it on the same
draws.

The sets are looked for in $LINNET_DATA; without them scikit-learn's diabetes
set is used.

Two examples

    linnet bench regressors --quick
        20 draws, 2,000 hours: a minute or two

    linnet bench regressors --json > regressors.json
        200 draws and the whole streams, for a program
"""

regressors = App(name="regressors", help_epilogue=LESSON, help_format="plaintext")


@regressors.default
def run_regressors(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    data: Path | None = None,
    draws: int | None = None,
    rows: int | None = None,
    models: Annotated[list[str] | None, SEVERAL] = None,
) -> None:
    """The options of `linnet bench regressors`.

    Parameters
    ----------
    quick
        20 draws, 2,000 hours of each stream; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    data
        The folder that holds tabular and timeseries.
    draws
        Random draws of each size; 200 when not given.
    rows
        Hours of each stream; all when not given.
    models
        diag, full, or files of linnet icl train; diag and full when not given.
    """
    from ..bench.regressors import QUICK, RegressorSettings

    asked: dict[str, Any] = {"data": data, "draws": draws, "stream_rows": rows, "models": models and tuple(models)}
    given = {name: value for name, value in asked.items() if value is not None}
    document = measure(RegressorSettings(**{**(QUICK if quick else {}), **given}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: Any, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    from ..bench import regressor_data
    from ..bench.regressors import speed, stream_row, table_rows

    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "draws": settings.draws, "seed": settings.seed}
    document: dict[str, Any] = {"format": FORMAT, **about, "tables": [], "streams": [], "speed": None}
    document["interrupted"] = False
    tables, streams = regressor_data.tables(settings.data), regressor_data.streams(settings.data)
    try:
        with Progress(console=console, transient=True) as progress:
            for given in progress.track(tables, description="tables"):
                document["tables"] += table_rows(given, settings)
            for given in progress.track(streams, description="streams"):
                document["streams"].append(stream_row(given, settings))
            document["speed"] = speed(settings)
    except KeyboardInterrupt:
        document["interrupted"] = True
    return document


def show(document: dict[str, Any], console: Console) -> None:
    console.print(f"{made_on(document)}; up to {document['draws']} draws", highlight=False)
    for row in average(document["tables"]):
        print_table(console, f"mean over {row['sets']} sets, R² from {row['n']} rows", average_table(row))
    if document["tables"]:
        print_table(console, "R² of each set", score_table(document["tables"]))
    if document["streams"]:
        print_table(console, "streams: predict, then learn", score_table(document["streams"]))
    if document["speed"]:
        title = f"microseconds, {document['speed']['d']} features, {document['speed']['n']} rows known"
        print_table(console, title, speed_table(document["speed"]))
    say_interrupted(document, console)


def average(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean R² of each learner over the sets, for each number of rows that several sets share."""
    found = []
    for n in sorted({row["n"] for row in rows}):
        group = [row["learners"] for row in rows if row["n"] == n]
        if len(group) > 1:
            means = {name: sum(g[name]["r2"] for g in group) / len(group) for name in group[0]}
            found.append({"n": n, "sets": len(group), "learners": means})
    return found


def average_table(row: dict[str, Any]) -> Table:
    found = new_table(*row["learners"])
    found.add_row(*(f"{value:.3f}" for value in row["learners"].values()))
    return found


def score_table(rows: list[dict[str, Any]]) -> Table:
    """One line per row; the best, and all that are not clearly behind it, with a star."""
    names = list(dict.fromkeys(name for row in rows for name in row["learners"]))
    found = new_table("set", "d", "rows", *names)
    for row in rows:
        best = max(entry["r2"] for entry in row["learners"].values())
        cells = [score(row["learners"].get(name), best) for name in names]
        found.add_row(row["set"], str(row["d"]), f"{row.get('n', row.get('rows')):,}", *cells)
    return found


def score(entry: dict[str, Any] | None, best: float) -> str:
    if entry is None:
        return "-"
    near = entry["behind"] <= entry["behind_interval"] if "behind" in entry else entry["r2"] == best
    interval = f" ±{entry['interval']:.3f}" if "interval" in entry else ""
    aside = f" ({entry['fallback']:.0%})" if entry["fallback"] else ""
    return f"{entry['r2']:.3f}{interval}{aside}{' *' if near else ''}"


def speed_table(row: dict[str, Any]) -> Table:
    found = new_table("learner", "learn one row", "learn and predict")
    for name, entry in row["learners"].items():
        learn = f"{entry['learn']['us']:.0f} ({entry['learn']['median_us']:.0f})" if "learn" in entry else "fits anew"
        found.add_row(name, learn, f"{entry['refresh']['us']:.0f} ({entry['refresh']['median_us']:.0f})")
    return found
