"""`linnet report`: the page of a finished, running or copied `linnet reproduce` folder again, from its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..atomic import atomic
from ..errors import StateError
from ..reports.reproduce import csv as csv_of
from ..reports.reproduce import html
from ..reports.reproduce import markdown as markdown_of
from . import reproduce_show
from .bench_show import deliver
from .reproduce import PAGE, way_on

FLAG = Parameter(negative="")

report = App(name="report", help_format="plaintext")
report.help = "The page of a reproduce folder, made again from its rows; markdown and CSV too."


@report.default
def run_report(
    folder: Path,
    *,
    html_file: Annotated[Path | None, Parameter(name="--html")] = None,
    markdown: Path | None = None,
    csv: Path | None = None,
    skip_damaged: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Nothing is run. Without an option the page is written to FOLDER/report.html.

    Parameters
    ----------
    folder
        The --out folder of `linnet reproduce`.
    html_file
        Write the page to this file.
    markdown
        Write scoreboard and claims as markdown to this file.
    csv
        Write every number, one to a line, to this file.
    skip_damaged
        Leave out the lines of the results file that cannot be read; they stay in it.
    json
        The whole document on standard output, and nothing else there.
    """
    from ..experiments.claims.document import document

    try:
        found = document(folder, skip_damaged=skip_damaged)
    except StateError as error:
        raise way_on(error) from None
    texts = {html_file: html, markdown: markdown_of, csv: csv_of}
    wanted = {path: make for path, make in texts.items() if path is not None} or {folder / PAGE: html}
    for path, make in wanted.items():
        with atomic(path) as file:
            file.write(make(found).encode())
    deliver(found, json, reproduce_show.show)
