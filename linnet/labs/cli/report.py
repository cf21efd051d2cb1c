"""`linnet report`: rebuild the page of a finished, running or copied `linnet reproduce` folder from its rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ...atomic import atomic
from ...cli.common import FLAG, SEVERAL, deliver
from ...data.files import read_text
from ...errors import StateError
from ..report.blocks import with_blocks
from ..report.chart import drawing
from ..report.picture import picture
from ..report.reproduce import csv as csv_of
from ..report.reproduce import html
from ..report.reproduce import markdown as markdown_of
from . import reproduce_show
from .reproduce import PAGE, with_hint

report = App(name="report", help_format="plaintext")
report.help = "Rebuild the page of a reproduce folder from its rows; also as Markdown and CSV."


@report.default
def run_report(
    folder: Path,
    *,
    html_file: Annotated[Path | None, Parameter(name="--html")] = None,
    markdown: Path | None = None,
    csv: Path | None = None,
    into: Annotated[list[Path] | None, SEVERAL] = None,
    figures: Path | None = None,
    evidence: Path | None = None,
    seal: Annotated[bool, FLAG] = False,
    skip_damaged: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Rebuild the page from the rows; without an option it is written to FOLDER/report.html.

    Parameters
    ----------
    folder
        The --out folder of `linnet reproduce`.
    html_file
        Write the page to this file.
    markdown
        Write scoreboard and claims as Markdown to this file.
    csv
        Write every number, one per line, to this file.
    into
        Replace the marked blocks of these Markdown files, each of which ends with <!-- end -->: the table of
        <!-- scoreboard -->, the counts of <!-- evidence -->, a number of a claim in <!-- number NAME 0 -->.
    figures
        Write every chart as an SVG file, NAME-1.svg and so on, to this folder.
    evidence
        Write the outcome of every claim, for other runs to be compared with, to this file.
    seal
        Write FOLDER/manifest.json, the hashes of the rows; from then on an edited row is refused. A day run in
        FOLDER/day is sealed too, and may grow.
    skip_damaged
        Skip the lines of the results file that cannot be read; they stay in the file.
    json
        Print the whole document as JSON, and nothing else, on standard output.
    """
    from ..claims.document import document
    from ..core.claim import DAY
    from ..core.evidence import write_evidence
    from ..core.folder import RUN
    from ..core.manifest import write_manifest

    try:
        for one in (folder, folder / DAY) if seal else ():
            if one == folder or (one / RUN).is_file():
                write_manifest(one)
        if evidence is not None:
            write_evidence(document(folder, skip_damaged=skip_damaged), evidence)
        content = document(folder, skip_damaged=skip_damaged)
    except StateError as error:
        raise with_hint(error) from None
    texts = {html_file: html, markdown: markdown_of, csv: csv_of}
    outputs = {path: render(content) for path, render in texts.items() if path is not None}
    outputs |= {path: with_blocks(path, read_text(path), content, folder) for path in into or ()}
    outputs |= {figures / name: text for name, text in pictures(content).items()} if figures else {}
    for path, text in (outputs or {folder / PAGE: html(content)}).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write(text.encode())
    deliver(content, json, reproduce_show.show)


def pictures(document: dict[str, Any]) -> dict[str, str]:
    """Return file name -> SVG of every chart that has something to draw."""
    named = {
        f"{claim['name']}-{i}.svg": chart for claim in document["claims"] for i, chart in enumerate(claim["charts"], 1)
    }
    return {name: picture(chart) for name, chart in named.items() if drawing(chart)[0]}
