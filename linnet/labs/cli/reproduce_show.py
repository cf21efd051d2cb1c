"""The scoreboard of `linnet reproduce` in a terminal: one line for each claim, paper by paper, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..report.scoreboard import Headline, headline

if TYPE_CHECKING:
    from ..core.claim import Claim, Setting
    from ..core.results import Row

COLOURS = {"confirmed": "green", "refuted": "red", "unclear": "yellow", "not testable": "dim", "error": "bold red"}


def wide() -> Console:
    """Return a console as wide as the terminal, or wide enough for one line per claim where there is none."""
    return Console(width=None if sys.stdout.isatty() else 150, highlight=False)


def show(document: dict[str, Any], console: Console) -> None:
    for paper in document["papers"]:
        console.print(paper["title"], style="bold", highlight=False)
        table = Table(box=None, pad_edge=False, show_header=False)
        for width in (3, 12, None):
            table.add_column(width=width, overflow="fold")
        for claim in document["claims"]:
            if claim["paper"] == paper["key"]:
                table.add_row(*line(claim))
        console.print(table)
        console.print()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in document["counts"].items() if count)
    console.print(f"{len(document['claims'])} claims: {counts}; budget {document['budget']}, {about_time(document)}")


def line(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """Return number, verdict, and the question above the measurement."""
    colour = COLOURS[claim["outcome"]]
    verdict = f"[{colour}]{claim['outcome']}[/{colour}]"
    detail = "; ".join(claim["errors"]) or measured(headline(claim)) or claim["sentence"]
    return (claim["number"], verdict, f"{escape(claim['question'])}\n[dim]{escape(detail)}[/dim]")


def measured(first: Headline) -> str:
    """Return the first number of a claim with its interval, and the paper's."""
    ours = " ".join(filter(None, (first.ours, first.spread)))
    return f"{first.what}: {ours}" + (f"; the paper: {first.paper}" if first.paper else "") if first.ours else ""


def claim_line(claim: Claim, known: Mapping[str, Row], setting: Setting) -> str:
    """Return the line printed when the last row of a claim is complete."""
    from ..claims.document import claim_document

    finding = claim_document(claim, known, setting, [])
    detail = "; ".join(finding["errors"]) or measured(headline(finding))
    return f"{claim.number} {claim.name}: {finding['outcome']}. {detail}".strip()


def about_time(document: Mapping[str, Any]) -> str:
    return f"{document['rows']:,} rows in {document['minutes']:.1f} minutes"


def list_claims(claims: Iterable[Claim], console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "number", "paper", "question"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        table.add_row(claim.name, claim.number, claim.paper, escape(claim.question))
    console.print(table)
