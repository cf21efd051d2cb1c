"""`linnet bench regressors`: compare InContextRegressor with scikit-learn's linear regressors.

Options, progress bar, table and JSON of the measurements in linnet/labs/bench/regressors.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ...cli.common import FLAG, SEVERAL, deliver
from .bench_frame import measuring, new_document
from .bench_show import new_table, print_interrupted, print_table, provenance
from .options import given

EPILOG = """\
Measure how well a pretrained linear transformer predicts from few rows and on
a stream, compared with Ridge, RidgeCV, BayesianRidge, SGD and recursive least
squares.

Tables: mean test R² over random draws of 20, 50, 200 rows and of four fifths
of the data set, with 1.96 standard errors; in parentheses the share of draws
in which the transformer fell back to ridge. Streams: every hour is predicted,
then learned. Speed: microseconds to learn one more row, and to learn and
predict. * marks the best of a row and all that are not clearly behind it on
the same draws.

The data sets are read from $LINNET_DATA; without them scikit-learn's diabetes
data set is used.

Two examples

    linnet bench regressors --quick
        20 draws, 2,000 hours: a minute or two

    linnet bench regressors --json > regressors.json
        200 draws and the whole streams, as JSON
"""

regressors = App(name="regressors", help_epilogue=EPILOG, help_format="plaintext")


@regressors.default
def run_regressors(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    data: Path | None = None,
    draws: int | None = None,
    rows: int | None = None,
    models: Annotated[list[str] | None, SEVERAL] = None,
) -> None:
    """Run `linnet bench regressors`.

    Parameters
    ----------
    quick
        20 draws, 2,000 hours of each stream; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    data
        The folder that holds tabular and timeseries.
    draws
        Random draws of each size; default: 200.
    rows
        Hours of each stream; default: all.
    models
        diag, full, or files of linnet icl train; default: diag and full.
    """
    from ..bench.regressors import QUICK, RegressorSettings

    options = given(data=data, draws=draws, stream_rows=rows, models=models)
    document = measure(RegressorSettings(**{**(QUICK if quick else {}), **options}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: Any, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    from ..bench import regressor_data
    from ..bench.regressors import speed, stream_row, table_rows

    document = new_document(draws=settings.draws, seed=settings.seed, tables=[], streams=[], speed=None)
    tables, streams = regressor_data.tables(settings.data), regressor_data.streams(settings.data)
    with measuring(document, console) as progress:
        for table in progress.track(tables, description="tables"):
            document["tables"] += table_rows(table, settings)
        for stream in progress.track(streams, description="streams"):
            document["streams"].append(stream_row(stream, settings))
        document["speed"] = speed(settings)
    return document


def show(document: dict[str, Any], console: Console) -> None:
    console.print(f"{provenance(document)}; up to {document['draws']} draws", highlight=False)
    for row in average(document["tables"]):
        print_table(console, f"mean over {row['sets']} sets, R² from {row['n']} rows", average_table(row))
    if document["tables"]:
        print_table(console, "R² of each set", score_table(document["tables"]))
    if document["streams"]:
        print_table(console, "streams: predict, then learn", score_table(document["streams"]))
    if document["speed"]:
        title = f"microseconds, {document['speed']['d']} features, {document['speed']['n']} rows known"
        print_table(console, title, speed_table(document["speed"]))
    print_interrupted(document, console)


def average(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean R² of each learner over the data sets, for each number of rows that several sets share."""
    means_by_rows = []
    for n in sorted({row["n"] for row in rows}):
        group = [row["learners"] for row in rows if row["n"] == n]
        if len(group) > 1:
            means = {name: sum(g[name]["r2"] for g in group) / len(group) for name in group[0]}
            means_by_rows.append({"n": n, "sets": len(group), "learners": means})
    return means_by_rows


def average_table(row: dict[str, Any]) -> Table:
    drawn = new_table(*row["learners"])
    drawn.add_row(*(f"{value:.3f}" for value in row["learners"].values()))
    return drawn


def score_table(rows: list[dict[str, Any]]) -> Table:
    """Return one line per row; a star marks the best learner and all that are not clearly behind it."""
    names = list(dict.fromkeys(name for row in rows for name in row["learners"]))
    drawn = new_table("set", "d", "rows", *names)
    for row in rows:
        best = max(entry["r2"] for entry in row["learners"].values())
        cells = [score(row["learners"].get(name), best) for name in names]
        drawn.add_row(row["set"], str(row["d"]), f"{row.get('n', row.get('rows')):,}", *cells)
    return drawn


def score(entry: dict[str, Any] | None, best: float) -> str:
    if entry is None:
        return "-"
    near = entry["behind"] <= entry["behind_interval"] if "behind" in entry else entry["r2"] == best
    interval = f" ±{entry['interval']:.3f}" if "interval" in entry else ""
    aside = f" ({entry['fallback']:.0%})" if entry["fallback"] else ""
    return f"{entry['r2']:.3f}{interval}{aside}{' *' if near else ''}"


def speed_table(row: dict[str, Any]) -> Table:
    drawn = new_table("learner", "learn one row", "learn and predict")
    for name, entry in row["learners"].items():
        learn = f"{entry['learn']['us']:.0f} ({entry['learn']['median_us']:.0f})" if "learn" in entry else "refits"
        drawn.add_row(name, learn, f"{entry['refresh']['us']:.0f} ({entry['refresh']['median_us']:.0f})")
    return drawn
