"""The tables of `linnet recall`, from documents of linnet/labs/recall/document.py.

0.991 [0.984, 0.997]    mean accuracy of the seeds at the last step, and its 95 % t interval
window 1.0              log10 of the highest over the lowest learning rate with a mean accuracy of 0.95 or more
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...atomic import atomic
from ..report.recall import HEAD, LEGEND, cells_of, described, label, provenance
from .bench_show import new_table, print_table

Entry = dict[str, Any]


def show(document: Entry, console: Console) -> None:
    console.print(provenance(document), highlight=False)
    table = new_table(*HEAD)
    for cell in document["cells"]:
        table.add_row(*cells_of(cell))
    print_table(console, "recall of the last step, mean over seeds with its 95 % interval", table)
    console.print(Text(f"\n{LEGEND}", style="dim"))


def one_line(row: Entry) -> str:
    config, metrics = row["config"], row["metrics"]
    where = f"N={config['seq_len']}, {config['pairs']} pairs, rate {config['lr']:g}, seed {config['seed']}"
    return f"{label(config)}, {where}: {metrics['accuracy']:.3f} in {row['seconds']:.0f} s"


def markdown(document: Entry) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(cells_of(cell)) + " |" for cell in document["cells"]]
    return "\n".join(lines) + "\n"


def study_markdown(document: Entry) -> str:
    """Return the statement, the outcome and the tables of a study as Markdown."""
    lines = [f"**{document['statement']}**", "", *(f"- {name}: {words}" for name, words in described(document)), ""]
    return "\n".join([*lines, *(f"{table_markdown(one)}\n" for one in document["tables"])])


def table_markdown(table: Entry) -> str:
    rows = (table["head"], ["---"] * len(table["head"]), *table["rows"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write_page(text: str, path: Path) -> None:
    """Write a page atomically."""
    with atomic(path) as file:
        file.write(text.encode())


def list_studies(studies: Iterable[Any], console: Console) -> None:
    table = new_table("name", "claim", "statement", "long")
    for column in table.columns:
        column.justify = "left"
    for study in studies:
        table.add_row(study.name, study.number, study.statement, minutes_of(study))
    console.print(table)


def minutes_of(study: Any) -> str:
    """Estimate the time of the default budget on two cores."""
    from ..core.claim import Setting

    return f"{sum(unit.seconds for unit in study.units(Setting('long'))) / 120:.0f} minutes"


def show_study(document: Entry, console: Console) -> None:
    console.print(provenance(document), highlight=False)
    for name in ("statement", "source", "rule"):
        console.print(Text(f"{name}: {document[name]}"), soft_wrap=True)
    for table in document["tables"]:
        printed: Table = new_table(*table["head"])
        for row in table["rows"]:
            printed.add_row(*row)
        print_table(console, table["title"], printed)
    console.print()
    for place, (name, words) in enumerate(described(document)):
        console.print(Text(f"{name}: {words}", style="" if place else "bold"), soft_wrap=True)
