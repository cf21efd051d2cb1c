"""The tables of `linnet bench decode`, from the rows of linnet/labs/bench/decode*.py.

1.00 (1.02)   minimum of the rounds, median in parentheses        -   not measured; the notes below say why
x model.step  how many times faster than that competitor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .bench_show import mebibytes, new_table, print_interrupted, print_table, provenance

Row = dict[str, Any]


def show(document: Row, console: Console) -> None:
    console.print(f"{provenance(document)}; model {document['preset']}, {document['rounds']} rounds", highlight=False)
    for section, shown in SECTIONS.items():
        for row in document["rows"].get(section, []):
            shown(row, console)
    show_mixers(document["rows"].get("mixers", []), console)
    notes(document, console)
    print_interrupted(document, console)


def show_steps(row: Row, console: Console) -> None:
    title = (
        f"one step, batch {row['batch']}, threads {row['threads']}, softmax sees {row['context']:,} tokens; x = faster"
    )
    print_table(console, title, step_table(row))
    for kind, read in row["reads"].items():
        console.print(
            f"{kind}: {read['bytes'] / 1e6:.1f} MB of weights read at {read['gb_per_s']:.1f} GB/s = "
            f"{read['min_s'] * 1e6:.0f} us",
            highlight=False,
        )
    alone = [f"{name} {one['sgemm_percent']:.0f} %" for name, one in row["projections"].items()]
    noise = row["sgemm"]["median_s"] / row["sgemm"]["min_s"]
    rate = f"sgemm {row['sgemm']['gflops']:.0f} GF/s (its median time {noise:.2f} x the minimum)"
    console.print(f"{rate}; the matrices of a step alone: {', '.join(alone)} of it", highlight=False)


def step_table(row: Row) -> Table:
    bases = list(dict.fromkeys(base for entry in row["competitors"].values() for base in entry.get("faster_than", {})))
    heads = [f"x {base}" for base in bases]
    table = new_table("", "us per step", "tokens/s", *heads, "% of reading", "% of sgemm", "error")
    for name, entry in row["competitors"].items():
        if "min_s" not in entry:
            table.add_row(name, entry["status"])
            continue
        us = f"{entry['us_per_step']:,.0f} ({entry['median_s'] * 1e6:,.0f})"
        pairs = [(entry["faster_than"][base], entry["faster_than_median"][base]) for base in bases]
        ratios = [f"{least:.2f} ({middle:.2f})" for least, middle in pairs]
        read = f"{entry['read_percent']:.0f}" if "read_percent" in entry else "-"
        limits = (read, f"{entry['sgemm_percent']:.0f}")
        table.add_row(name, us, f"{entry['tokens_per_s']:,.0f}", *ratios, *limits, f"{entry['error']:.0e}")
    return table


def show_mixers(rows: list[Row], console: Console) -> None:
    """Print a table for each number of threads and streams, a row for each mixer."""
    for threads, batch in dict.fromkeys((row["threads"], row["batch"]) for row in rows):
        here = [row for row in rows if (row["threads"], row["batch"]) == (threads, batch)]
        kinds = [name for name in here[0]["competitors"] if name.startswith("linnet")]
        of_kinds = [(f"{kind.removeprefix('linnet ')}, us", "x model.step", "% of reading") for kind in kinds]
        table = new_table("mixer", "weights, M", "state, KiB", *(head for heads in of_kinds for head in heads))
        for row in here:
            cells = [cell for kind in kinds for cell in _mixer_cells(row["competitors"][kind])]
            table.add_row(row["mixer"], f"{row['weights'] / 1e6:.2f}", f"{row['state_bytes'] / 1024:.0f}", *cells)
        print_table(console, f"one step with each mixer, batch {batch}, threads {threads}; x = faster", table)


def _mixer_cells(entry: Row) -> tuple[str, str, str]:
    if "min_s" not in entry:
        return entry["status"], "-", "-"
    ratio = entry["faster_than_step"]
    us = f"{entry['us_per_step']:,.0f} ({entry['median_s'] * 1e6:,.0f})"
    return us, "-" if ratio is None else f"{ratio:.1f}", f"{entry['read_percent']:.0f}"


def show_images(row: Row, console: Console) -> None:
    title = f"images of {row['tokens']:,} values, {row['batch']} together, threads {row['threads']}, sampling included"
    table = new_table("", "seconds per image", "us per value")
    for name, entry in row["competitors"].items():
        if "min_s" in entry:
            middle = entry["median_s"] / row["batch"]
            seconds = f"{entry['seconds_per_image']:.3f} ({middle:.3f})"
            table.add_row(name, seconds, f"{entry['us_per_value']:.1f}")
    table.add_row("paper, unnamed CPU", f"{row['paper_seconds']}", "")
    print_table(console, title, table)


def show_curve(row: Row, console: Console) -> None:
    title = f"{row['engine']} against softmax with a cache, one stream, threads {row['threads']}"
    table = new_table("token", "linear, us", "softmax, us", "linear, MiB", "softmax, MiB")
    for point in row["points"]:
        us = [f"{s * 1e6:,.0f}" if s else "-" for s in (point["seconds"]["linear"], point["seconds"]["softmax"])]
        held = [mebibytes(point["state_bytes"][name]) for name in ("linear", "softmax")]
        table.add_row(f"{point['token']:,}", *us, *held)
    print_table(console, title, table)
    if row["left_out"]:
        console.print(Text(f"softmax cache: left out: {row['left_out']}"))


def show_soak(row: Row, console: Console) -> None:
    title = f"soak: {row['tokens']:,} tokens of one stream on {row['engine']}, threads {row['threads']}"
    heads = ("us per token", "us, a new stream", "ratio", "ratio of processor time")
    table = new_table("token", *heads, "us in between", "MiB of the process")
    for mark in row["marks"]:
        since = mark["us_per_token_since"]
        times = [f"{mark[name]:.1f}" for name in ("old_us", "new_us")]
        times += [f"{mark[name]:.3f}" for name in ("ratio_clock", "ratio")]
        way = "-" if since is None else f"{since:.1f}"
        table.add_row(f"{mark['token']:,}", *times, way, mebibytes(mark["resident_bytes"]))
    print_table(console, title, table)
    growth = "unknown" if row["growth_bytes"] is None else f"{row['growth_bytes'] / 2**20:.1f} MiB"
    worst, state = (
        f"worst ratio of processor time {row['worst_ratio']:.3f}",
        f"state {row['state_bytes'] / 1024:.0f} KiB",
    )
    outputs = "finite" if row["finite"] else "NOT finite"
    flat = "flat" if row["flat"] else "not flat"
    console.print(f"{flat}: {worst}, process grew by {growth}, {state}, outputs {outputs}", highlight=False)


SECTIONS: dict[str, Callable[[Row, Console], None]] = {
    "steps": show_steps,
    "images": show_images,
    "curve": show_curve,
    "soak": show_soak,
}


def notes(document: Row, console: Console) -> None:
    """Print each reason for a missing number once, and what the competitors are."""
    rows = [row for section in ("steps", "mixers", "images") for row in document["rows"].get(section, [])]
    entries = [pair for row in rows for pair in row["competitors"].items()]
    missing = {(name, f"{entry['status']}: {entry['reason']}") for name, entry in entries if "reason" in entry}
    console.print()
    for name, reason in sorted(missing):
        console.print(Text(f"{name}: {reason}", style="bold red" if reason.startswith("wrong") else ""))
    for name in dict.fromkeys(name for name, entry in entries if "min_s" in entry):
        console.print(Text(f"{name}: {document['competitors'][name]}", style="dim"))
