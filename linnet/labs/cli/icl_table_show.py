"""The tables of `linnet icl table`, from a document of linnet/labs/icl/table_compare.py.

0.0391 <     ours, which is better (<), equal (=), worse (>), unclear (?), or worse than an impossible value (*)
±0.0003      its standard error
0.047        the paper's
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .bench_show import new_table, print_table, provenance

SIGNS = {
    "better": ("<", "green"),
    "equal": ("=", ""),
    "worse": (">", "red"),
    "unclear": ("?", "yellow"),
    "impossible": ("*", ""),
}
LEGEND = (
    "< better, = equal within two standard errors (which include the paper's and its rounding), > worse, ? above the "
    "paper, but the error is too large to decide, * worse, but the paper's value is impossible (see below)"
)
DETAILS = (
    "details: loss is ½|w - w_true|² minus the oracle's, sharp is ½|w - w_oracle|², equal on average; seed of seeds"
)
Entry = dict[str, Any]


def show(document: Entry, console: Console, *, details: bool) -> None:
    entries = [*document["cells"], *document["baselines"]]
    recipe = f"recipe {document['recipe']}, " if document["recipe"] else ""
    how = f"{recipe}{document['sequences']:,} sequences, {document['minutes']:.1f} minutes of wall clock"
    console.print(f"{provenance(document)}; {how}")
    print_table(console, "half the squared error above the oracle's: ours, standard error, paper", main_table(entries))
    if details:
        print_table(console, DETAILS, detail_table(entries))
    console.print(Text(f"\n{LEGEND}", style="dim"))
    for reason, where in reasons(document["cells"]).items():
        console.print(Text(f"* {', '.join(where)}: {reason}"))
    counts = document["counts"]
    console.print(Text("cells: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)))


def main_table(entries: list[Entry]) -> Table:
    """Return the table: a row per layers and model, a column per noise, baselines at the bottom."""
    noises, groups = arranged(entries)
    table = new_table("layers", "model", "", *noises)
    for (layers, model), by_noise in groups.items():
        row = [by_noise.get(noise) for noise in noises]
        table.add_row("-" if layers is None else str(layers), model, "ours", *map(ours, row))
        table.add_row("", "", "±", *(error(entry) if entry else "" for entry in row), style="dim")
        table.add_row("", "", "paper", *(printed(entry["paper"]) if entry else "" for entry in row), style="dim")
    return table


def arranged(entries: list[Entry]) -> tuple[list[str], dict[tuple[Any, str], dict[str, Entry]]]:
    """Return the noises in order, and (layers, model) -> noise -> entry."""
    groups: dict[tuple[Any, str], dict[str, Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.get("layers"), entry["model"]), {})[entry["noise"]] = entry
    return in_order(entry["noise"] for entry in entries), groups


def markdown(document: Entry) -> str:
    """Return the main table as Markdown: our value with its mark, the paper's in parentheses."""
    noises, groups = arranged([*document["cells"], *document["baselines"]])
    lines = ["| L | model | " + " | ".join(noises) + " |", "|---" * (2 + len(noises)) + "|"]
    for (layers, model), by_noise in groups.items():
        cells = [f"{ours(entry)} ({printed(entry['paper'])})" if (entry := by_noise.get(n)) else "" for n in noises]
        lines.append(f"| {'-' if layers is None else layers} | {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def detail_table(entries: list[Entry]) -> Table:
    names = ("loss", "se", "sharp", "sharp_se", "query_se", "median", "trimmed")
    table = new_table("layers", "model", "noise", "seed", *names, "diverged", "z", "seconds")
    for entry in entries:
        seed = f"{entry['seed']} of {len(entry['seeds'])}" if "seeds" in entry else "-"
        z = "-" if entry["z"] is None else f"{entry['z']:+.1f}"
        where = (str(entry.get("layers", "-")), entry["model"], entry["noise"], seed)
        values = (number(entry[name]) for name in names)
        table.add_row(*where, *values, f"{100 * entry['diverged']:.3g} %", z, f"{entry['seconds']:.1f}")
    return table


def in_order(noises: Iterable[str]) -> list[str]:
    """Sort uniform noises by their maximum, then the others by their number of values, as in the paper."""
    return sorted(set(noises), key=lambda name: (not name.startswith("U"), len(name), name))


def ours(entry: Entry | None) -> Text:
    if entry is None:
        return Text("")
    sign, style = SIGNS.get(entry["mark"], (" ", ""))
    return Text(f"{number(entry['sharp'])} {sign}", style=style)


def number(value: float | None) -> str:
    """Format with four decimals, or two significant digits where these are too few; inf for None."""
    if value is None:
        return "inf"
    return "0" if value == 0 else f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def error(entry: Entry) -> str:
    """Format the standard error with as many decimals as its value."""
    value, se = entry["sharp"], entry["sharp_se"]
    return f"{se:.4f}" if value is not None and 1e-3 <= value < 1e4 else number(se)


def printed(value: float | None) -> str:
    """Format a value as the paper does."""
    return "-" if value is None else "0" if value == 0 else f"{value:.3f}" if value >= 1e-3 else f"{value:.2e}"


def reasons(cells: Iterable[Entry]) -> dict[str, list[str]]:
    """Return each reason why the paper's value cannot be reached, with the cells it applies to."""
    cells_by_reason: dict[str, list[str]] = {}
    for cell in cells:
        if cell["mark"] == "impossible":
            cells_by_reason.setdefault(cell["reason"], []).append(f"{cell['model']} L{cell['layers']} {cell['noise']}")
    return cells_by_reason


def deep(layers: int) -> str:
    return f"{layers} layer" + "s" * (layers > 1)


def one_line(row: Entry) -> str:
    config, metrics = row["config"], row["metrics"]
    layers = f", {deep(config['layers'])}" if "layers" in config else ""
    loss = f"{number(metrics['sharp'])} ± {number(metrics['sharp_se'])}"
    return f"{config['kind']}{layers} on {config['noise']}: {loss} ({row['seconds']:.1f} s)"
