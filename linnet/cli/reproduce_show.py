"""The scoreboard of `linnet reproduce` in a terminal: one line for each claim, paper by paper, and the counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..reports.scoreboard import Headline, headline

if TYPE_CHECKING:
    from ..experiments.claims.claim import Claim, Setting
    from ..experiments.results import Row

COLOURS = {"confirmed": "green", "refuted": "red", "unclear": "yellow", "not testable": "dim", "error": "bold red"}


def wide() -> Console:
    """As wide as the terminal; where there is none, wide enough for a line each."""
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
    """Number, verdict, and the question above what was measured."""
    colour = COLOURS[claim["outcome"]]
    verdict = f"[{colour}]{claim['outcome']}[/{colour}]"
    said = "; ".join(claim["errors"]) or measured(headline(claim)) or claim["sentence"]
    return (claim["number"], verdict, f"{escape(claim['question'])}\n[dim]{escape(said)}[/dim]")


def measured(found: Headline) -> str:
    """The first number of a claim with its interval, and the paper's."""
    ours = " ".join(filter(None, (found.ours, found.spread)))
    return f"{found.what}: {ours}" + (f"; the paper: {found.paper}" if found.paper else "") if found.ours else ""


def told(claim: Claim, known: Mapping[str, Row], setting: Setting) -> str:
    """What is said when the last row of a claim is there."""
    from ..experiments.claims.document import claim_document

    found = claim_document(claim, known, setting, [])
    said = "; ".join(found["errors"]) or measured(headline(found))
    return f"{claim.number} {claim.name}: {found['outcome']}. {said}".strip()


def about_time(document: Mapping[str, Any]) -> str:
    return f"{document['rows']:,} rows in {document['minutes']:.1f} minutes"


def list_claims(claims: Iterable[Claim], console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "number", "paper", "question"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        table.add_row(claim.name, claim.number, claim.paper, escape(claim.question))
    console.print(table)
