"""The tables of `linnet bench ops`, from the rows of linnet/labs/bench, and the table helpers of all bench commands.

1.00 (1.02)   minimum of the rounds, median in parentheses        -   left out; the notes below say why
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = dict[str, Any]
LEGEND = "ns per token and head, % of sgemm on the floor, then time / linnet's time"


def show(document: Row, console: Console) -> None:
    machine, versions = document["machine"], document["versions"]
    console.print(
        f"{machine['name']}, {machine['cores']} cores, torch {versions['torch']} ({machine['torch_capability']}), "
        f"linnet {versions['linnet']}; {document['rounds']} rounds, float32",
        highlight=False,
    )
    for section, shown in SECTIONS.items():
        if document["rows"].get(section):
            shown(document["rows"][section], console)
    notes(document, console)
    print_interrupted(document, console)


def show_ops(rows: list[Row], console: Console) -> None:
    for key, group in grouped(rows, ("mode", "threads", "head_dim")):
        title = f"{key[0]}, threads {key[1]}, width {key[2]}: {LEGEND}"
        print_table(console, title, race_table(group, lambda row: f"{row['streams']} x {row['length']:,}"))
    for mode, group in grouped([row for row in rows if row["threads"] == rows[-1]["threads"]], ("mode",)):
        title = f"{mode[0]}: peak memory added by a call, results included, MiB (the system's high-water mark)"
        print_table(console, title, memory_table(group))


def show_quadratic(rows: list[Row], console: Console) -> None:
    for key, group in grouped(rows, ("mode", "threads")):
        title = f"quadratic maps, head width 16, values 64, {key[0]}, threads {key[1]}: {LEGEND}"
        print_table(console, title, race_table(group, lambda row: f"{row['feature_map']} {row['length']:,}"))


def race_table(rows: list[Row], label: Callable[[Row], str]) -> Table:
    """Show ns per token and head of the baseline, its percentage of sgemm, then each time / the baseline's time."""
    names = timed(rows)
    table = new_table("streams x tokens", "ns", "%", *names[1:], "best torch")
    for row in rows:
        entries = row["competitors"]
        base = entries.get(row.get("baseline") or "", {})
        cells = [nanoseconds(base, row), f"{base['floor_percent']:.0f}"] if base else ["-", "-"]
        cells += [ratio(entries.get(name, {})) for name in names[1:]]
        table.add_row(label(row), *cells, ratio(entries.get(row.get("best_torch") or "", {})))
    return table


def memory_table(rows: list[Row]) -> Table:
    names = timed(rows)
    table = new_table("streams x tokens, width", "results", *names)
    for row in rows:
        entries = row["competitors"]
        results = next((e["output_bytes"] for e in entries.values() if "output_bytes" in e), None)
        cells = [mebibytes(entries.get(name, {}).get("extra_bytes")) for name in names]
        table.add_row(f"{row['streams']} x {row['length']:,}, {row['head_dim']}", mebibytes(results), *cells)
    return table


def show_threads(rows: list[Row], console: Console) -> None:
    table = new_table("streams x tokens", "mode", "threads", "linnet", "sgemm", "same bits")
    for row in rows:
        for count in row["threads"][1:]:
            ours, sgemm = (f"{row['times'][f'{name} {count}']['speedup']:.2f}" for name in ("linnet", "sgemm"))
            same = "yes" if row["identical"] else "no"
            table.add_row(f"{row['streams']} x {row['length']:,}", row["mode"], str(count), ours, sgemm, same)
    print_table(console, "threads: speedup over one thread", table)


def show_block(rows: list[Row], console: Console) -> None:
    names = list(rows[0]["times"])
    title = "a transformer block (d 512, 8 heads): time / the same block without attention"
    table = new_table("tokens", "mode", "threads", f"{names[0]}, ms", *names[1:])
    for row in rows:
        times = row["times"]
        cells = [ratio(times[name], places=3) for name in names[1:]]
        alone = f"{times[names[0]]['min_s'] * 1e3:.2f}"
        table.add_row(f"{row['length']:,}", row["mode"], str(row["threads"]), alone, *cells)
    print_table(console, title, table)


def show_long(rows: list[Row], console: Console) -> None:
    title = "long: forward, ns per token and head, and the float32 error of the last tokens against float64"
    table = new_table("tokens", "threads", "ns", "ns, 2,048 alone", "ratio", "ns, split into 2,048", "ratio", "error")
    for row in rows:
        sizes = (f"{row['length']:,}", str(row["threads"]))
        if "left_out" in row:
            table.add_row(*sizes, row["left_out"])
            continue
        ns = {name: f"{entry['ns_per_token_head']:.1f}" for name, entry in row["times"].items()}
        alone, cut = (ns["short"], f"{row['ratio']:.3f}"), (ns["batch"], f"{row['ratio_batch']:.3f}")
        table.add_row(*sizes, ns["long"], *alone, *cut, f"{row['error']:.1e}")
    print_table(console, title, table)


def show_gated(rows: list[Row], console: Console) -> None:
    for key, group in grouped(rows, ("mode", "threads", "streams", "length", "head_dim")):
        title = (
            f"{key[0]}, threads {key[1]}, {key[2]} x {key[3]:,}, width {key[4]}: ms, / elu + 1, then time / linnet's"
        )
        print_table(console, title, gated_table(group))


def gated_table(rows: list[Row]) -> Table:
    """Show the time of the baseline, that time / the time of elu + 1, then each time / the baseline's time."""
    names = [name for name in timed(rows) if name not in {row["baseline"] for row in rows} | {"elu + 1"}]
    table = new_table("rule", "ms", "/ elu + 1", *names)
    for row in rows:
        entries = row["competitors"]
        base, of_elu = entries.get(row["baseline"] or ""), "-"
        ms = "-" if base is None else f"{base['min_s'] * 1e3:.2f} ({base['median_s'] * 1e3:.2f})"
        if "of_elu" in row:
            of_elu = ratio({"ratio": row["of_elu"], "ratio_median": row["of_elu_median"]})
        table.add_row(row["rule"], ms, of_elu, *(ratio(entries.get(name, {})) for name in names))
    return table


def show_build(rows: list[Row], console: Console) -> None:
    for row in rows:
        done = row["status"] == "ok"
        text = f"{row['seconds']:.1f} s, {row['bytes'] / 1000:.0f} KB" if done else f"failed: {row['reason']}"
        console.print(Text(f"\nbuild of the native library from source: {text}"))


SECTIONS: dict[str, Callable[[list[Row], Console], None]] = {
    "ops": show_ops,
    "quadratic": show_quadratic,
    "threads": show_threads,
    "block": show_block,
    "long": show_long,
    "build": show_build,
    "gated": show_gated,
}


def races(document: Row) -> list[Row]:
    """Return the rows in which competitors were checked and timed."""
    return [row for section in ("ops", "quadratic", "gated") for row in document["rows"].get(section, [])]


def notes(document: Row, console: Console) -> None:
    """Print each reason for a missing number once, with its cases, and what the competitors are."""
    missing: dict[tuple[str, str], list[str]] = {}
    worst = 0.0
    for row in races(document):
        rule = f"{row['rule']} " if "rule" in row else ""
        case = rule + f"{row['streams']} x {row['length']:,} {row['mode']}"
        if "left_out" in row:
            missing.setdefault(("case", row["left_out"]), []).append(case)
        for name, entry in row["competitors"].items():
            if entry["status"] == "ok":
                worst = max(worst, entry["error"])
            else:
                missing.setdefault((name, f"{entry['status']}: {entry['reason']}"), []).append(case)
    if worst:
        console.print(
            Text(f"\nAll timed results agree with float64 within {worst:.1e} (accepted: {document['tolerance']:.0e}).")
        )
    for (name, reason), cases in missing.items():
        where = "" if len(cases) > 4 else f" ({', '.join(cases)})"
        style = "bold red" if reason.startswith(("wrong", "failed")) else ""
        console.print(Text(f"{name}: {reason}{where}", style=style))
    for section in ("ops", "gated"):
        for name in timed(document["rows"].get(section, [])):
            console.print(Text(f"{name}: {document['competitors'].get(name, '')}", style="dim"))


def provenance(document: Row) -> str:
    """Return the machine and the versions behind a document in one line."""
    machine, versions = document["machine"], document["versions"]
    return f"{machine['name']}, {machine['cores']} cores, torch {versions['torch']}, linnet {versions['linnet']}"


def print_interrupted(document: Row, console: Console) -> None:
    if document["interrupted"]:
        console.print("Interrupted: only the results measured so far are shown.", style="bold")


def print_table(console: Console, title: str, table: Table) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    console.print(table)


def in_markdown(show: Callable[[Row, Console], None]) -> Callable[[Row, Console], None]:
    """Return `show` with its tables as those of Markdown."""

    class Markdown(Console):
        def print(self, *objects: Any, **how: Any) -> None:
            for one in objects:
                if isinstance(one, Table):
                    one.box, one.padding = box.MARKDOWN, (0, 1, 0, 1)
            super().print(*objects, **how)

    return lambda document, console: show(document, Markdown(file=console.file, width=400))


def new_table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def grouped(rows: list[Row], keys: tuple[str, ...]) -> Iterable[tuple[tuple[Any, ...], list[Row]]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.items()


def timed(rows: list[Row]) -> list[str]:
    """Return the names that were timed in at least one row, ours first."""
    return list(dict.fromkeys(n for row in rows for n, entry in row["competitors"].items() if "min_s" in entry))


def nanoseconds(entry: Row, row: Row) -> str:
    middle = entry["median_s"] / (row["streams"] * row["length"]) * 1e9
    return f"{entry['ns_per_token_head']:.0f} ({middle:.0f})"


def ratio(entry: Row, places: int = 2) -> str:
    if "ratio" not in entry:
        return "-" if entry.get("status") != "wrong" else "wrong"
    value = entry["ratio"]
    digits = places if value < 10 else 0 if value >= 100 else 1
    return f"{value:.{digits}f} ({entry['ratio_median']:.{digits}f})"


def mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.1f}"
