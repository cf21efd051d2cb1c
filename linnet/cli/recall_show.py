"""The tables of `linnet recall`: documents of linnet/experiments/recall/document.py in, rich tables out.

0.991 [0.984, 0.997]    mean accuracy of the seeds at the last step, and 95 % of its bootstrap
window 1.0              log10 of the highest over the lowest learning rate with a mean accuracy of 0.95 or more
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..atomic import atomic
from .bench_show import new_table, print_table

HEAD = ("mixer", "N", "pairs", "d", "bytes of state", "accuracy", "solved", "steps to 0.9", "rate", "window", "s")
LEGEND = (
    "bytes: of the mixer under test, one sequence after its last token; solved: share of seeds at 0.99 or more; "
    "window: log10 of the rates with 0.95 or more"
)
Entry = dict[str, Any]


def show(document: Entry, console: Console) -> None:
    console.print(made(document), highlight=False)
    table = new_table(*HEAD)
    for cell in document["cells"]:
        table.add_row(*cells_of(cell))
    print_table(console, "recall of the last step, mean over seeds with its 95 % interval", table)
    console.print(Text(f"\n{LEGEND}", style="dim"))


def made(document: Entry) -> str:
    machine, versions = document["machine"], document["versions"]
    return (
        f"{machine['name']}, {machine['cores']} cores, torch {versions['torch']}, linnet {versions['linnet']}; "
        f"{document['runs']:,} runs in {document['minutes']:.1f} minutes"
    )


def cells_of(cell: Entry) -> list[str]:
    config, accuracy = cell["config"], cell["accuracy"]
    interval = f"{accuracy['mean']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}] of {accuracy['seeds']}"
    name = label(config)
    sizes = (str(config["seq_len"]), str(config["pairs"]), str(config["d_model"]), f"{cell['mixer_bytes']:,}")
    steps = "-" if cell["transition"] is None else f"{cell['transition']:.0f}"
    window = "-" if cell["window"] is None else f"{cell['window']:.1f}"
    rate = f"{config['lr']:g}" + ("" if cell["rates"] > 1 else " only")
    return [name, *sizes, interval, f"{cell['solved']:.0%}", steps, rate, window, f"{cell['seconds']:.0f}"]


def label(config: Entry) -> str:
    """The mixer, with the width of its keys and its own options."""
    width = f" f={config['key_dim']}" if config.get("key_dim") else ""
    options = "".join(f" {name}={value}" for name, value in config.get("options", {}).items())
    return f"{config['mixer']}{width}{options}"


def one_line(row: Entry) -> str:
    config, metrics = row["config"], row["metrics"]
    where = f"N={config['seq_len']}, {config['pairs']} pairs, rate {config['lr']:g}, seed {config['seed']}"
    return f"{label(config)}, {where}: {metrics['accuracy']:.3f} in {row['seconds']:.0f} s"


def markdown(document: Entry) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(cells_of(cell)) + " |" for cell in document["cells"]]
    return "\n".join(lines) + "\n"


def write_page(document: Entry, path: Path) -> None:
    """The page with figures, whole or not at all."""
    from ..reports.recall import html

    text = html(document)
    with atomic(path) as file:
        file.write(text.encode())


def list_studies(studies: Iterable[Any], console: Console) -> None:
    table = new_table("name", "claim", "question", "quick", "hour")
    for column in table.columns:
        column.justify = "left"
    for study in studies:
        table.add_row(study.name, study.claim, study.question, *(study.cost.get(b, "-") for b in ("quick", "hour")))
    console.print(table)


def show_study(document: Entry, console: Console) -> None:
    console.print(made(document), highlight=False)
    for name in ("question", "expected", "rule"):
        console.print(Text(f"{name}: {document[name]}"), soft_wrap=True)
    for found in document["tables"]:
        table: Table = new_table(*found["head"])
        for row in found["rows"]:
            table.add_row(*row)
        print_table(console, found["title"], table)
    console.print(Text(f"\n{document['outcome']}: {document['sentence']}", style="bold"), soft_wrap=True)
