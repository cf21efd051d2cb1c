"""The figure of `linnet bench ops --plot`: time per token and ratios against length, both axes logarithmic.

A flat line is a cost per token that does not grow; softmax attention is the one that climbs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.chart import Chart
from ..report.plot_file import save

Row = dict[str, Any]


def draw(document: Row, path: Path) -> None:
    """Write two charts per mode, for the most threads, the fewest streams and the smallest width measured."""
    rows = chosen(document["rows"].get("ops", []))
    if not rows:
        raise ValueError(f"--plot {path} has nothing to draw: the run ended before the first case of 'ops'")
    first = rows[0]
    sizes = f"{first['streams']} streams, width {first['head_dim']}, threads {first['threads']}, float32"
    save(path, f"Causal attention on {document['machine']['name']}: {sizes}", charts(rows))


def charts(rows: list[Row]) -> list[Chart]:
    """Describe time per token and time relative to ours, for each mode."""
    drawn = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        curves = lines([row for row in rows if row["mode"] == mode])
        times = {name: [(length, ns) for length, ns, _ in points] for name, points in curves.items()}
        ratios = {name: [(length, ratio) for length, _, ratio in points] for name, points in curves.items()}
        what = f"{mode}: time per token"
        drawn.append(Chart(what, "tokens", "nanoseconds per token and head", times, log_x=True, log_y=True))
        what = f"{mode}: time compared with linnet"
        drawn.append(Chart(what, "tokens", "time / linnet's time", ratios, log_x=True, log_y=True))
    return drawn


def chosen(rows: list[Row]) -> list[Row]:
    if not rows:
        return []
    threads, streams = max(row["threads"] for row in rows), min(row["streams"] for row in rows)
    width = min(row["head_dim"] for row in rows)
    return [r for r in rows if (r["threads"], r["streams"], r["head_dim"]) == (threads, streams, width)]


def lines(rows: list[Row]) -> dict[str, list[tuple[int, float, float]]]:
    """Return competitor -> (length, ns per token and head, ratio), by length."""
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["length"]):
        for name, entry in row["competitors"].items():
            if "ratio" in entry:
                curves.setdefault(name, []).append((row["length"], entry["ns_per_token_head"], entry["ratio"]))
    return curves
