"""The scoreboard of `linnet reproduce` in a terminal: a few lines for each claim, paper by paper, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..core.outlook import Line, totals
from ..report.axes import readable
from ..report.outcomes import SHOWN, in_words
from ..report.scoreboard import Headline, against_committed, compared, headline

if TYPE_CHECKING:
    from ..core.claim import Claim, Setting
    from ..core.results import Row


def wide() -> Console:
    """Return a console as wide as the terminal, or wide enough for one line per claim where there is none."""
    return Console(width=None if sys.stdout.isatty() else 150, highlight=False)


def show(document: dict[str, Any], console: Console) -> None:
    for paper in document["papers"]:
        console.print(paper["title"], style="bold", highlight=False)
        table = Table(box=None, pad_edge=False, show_header=False)
        for width in (3, 17, None):
            table.add_column(width=width, overflow="fold")
        for claim in document["claims"]:
            if claim["paper"] == paper["key"]:
                table.add_row(*line(claim))
        console.print(table)
        console.print()
    console.print(f"{len(document['claims'])} claims: {in_words(document['claims'])}")
    if compared(document):
        console.print(compared(document))
    console.print(f"budget {document['budget']}, {about_time(document)}")


def line(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """Return number, outcome, and the statement above its answer, deciding number and committed evidence."""
    look = SHOWN[claim["outcome"]]
    outcome = f"[{look.colour}]{look.mark} {claim['outcome']}[/{look.colour}]"
    below = [detail(claim), against_committed(claim)]
    return (claim["number"], outcome, "\n".join([escape(claim["statement"]), *_dim(below)]))


def _dim(lines: Iterable[str]) -> list[str]:
    return [f"[dim]{escape(line)}[/dim]" for line in lines if line]


def detail(claim: Mapping[str, Any]) -> str:
    """Return the answer with the deciding number, or what stood in the way of one."""
    why = "; ".join(claim["errors"]) or measured(headline(claim)) or readable(claim["sentence"])
    return f"{claim['answer']}. {why}"


def measured(first: Headline) -> str:
    """Return the deciding number with its interval, and the paper's."""
    if not first.ours:
        return ""
    ours = " ".join(filter(None, (first.ours, first.interval)))
    return f"{first.what}: {ours}" + (f"; the paper: {first.paper}" if first.paper else "")


def claim_line(claim: Claim, known: Mapping[str, Row], setting: Setting) -> str:
    """Return the line printed when the last row of a claim is complete: the claim in words and its result."""
    from ..claims.document import claim_document

    result = claim_document(claim, known, setting, [])
    return f"{SHOWN[result['outcome']].mark} {result['outcome']}: {claim.statement} {detail(result)}"


def about_time(document: Mapping[str, Any]) -> str:
    return f"{document['rows']:,} rows in {document['minutes']:.1f} minutes"


def show_plan(lines: Sequence[Line], console: Console) -> None:
    """Print a line for each stage of each claim, in the order of the work, and the sum."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("claim", "stage", "rows", "core-hours spent", "core-hours left"):
        table.add_column(name, justify="left" if name == "claim" else "right")
    for line in (*lines, totals(lines)):
        named = " ".join(filter(None, (line.number, line.claim)))
        rows = f"{line.rows:,} of {line.wanted:,}"
        table.add_row(named, str(line.stage or ""), rows, f"{line.spent:.2f}", f"{line.left:.2f}")
    console.print(table)


def list_claims(claims: Iterable[Claim], console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "number", "paper", "statement"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        table.add_row(claim.name, claim.number, claim.paper, escape(claim.statement))
    console.print(table)
