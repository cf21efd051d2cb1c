"""The picture of `linnet bench ops --plot`: time per token and ratios against length, both axes logarithmic.

A flat line is a cost per token that does not grow; softmax attention is the one that climbs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..atomic import atomic

Row = dict[str, Any]


def draw(document: Row, path: Path) -> None:
    """One line of panels per mode, for the most threads, the fewest streams and the smallest width measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = chosen(document["rows"].get("ops", []))
    if not rows:
        raise ValueError(f"--plot {path} has nothing to draw: the run ended before the first case of 'ops'")
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    figure, axes = pyplot.subplots(len(modes), 2, figsize=(13, 4.2 * len(modes)), squeeze=False, layout="constrained")
    for (left, right), mode in zip(axes, modes, strict=True):
        for name, points in lines([row for row in rows if row["mode"] == mode]).items():
            lengths, ns, ratios = zip(*points, strict=True)
            style = {"marker": "o", "markersize": 4, "linewidth": 2.4 if name == "linnet" else 1.2}
            left.plot(lengths, ns, label=name, **style)
            right.plot(lengths, ratios, label=name, **style)
        finish(left, f"{mode}: nanoseconds per token and head")
        finish(right, f"{mode}: time / linnet's time")
        right.axhline(1, color="black", linewidth=0.8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    first = rows[0]
    sizes = f"{first['streams']} streams, width {first['head_dim']}, threads {first['threads']}, float32"
    figure.suptitle(f"Causal attention on {document['machine']['name']}: {sizes}", fontsize=11)
    with atomic(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix[1:] or "png")
    pyplot.close(figure)


def chosen(rows: list[Row]) -> list[Row]:
    if not rows:
        return []
    threads, streams = max(row["threads"] for row in rows), min(row["streams"] for row in rows)
    width = min(row["head_dim"] for row in rows)
    return [r for r in rows if (r["threads"], r["streams"], r["head_dim"]) == (threads, streams, width)]


def lines(rows: list[Row]) -> dict[str, list[tuple[int, float, float]]]:
    """Competitor -> (length, ns per token and head, ratio), by length."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["length"]):
        for name, entry in row["competitors"].items():
            if "ratio" in entry:
                found.setdefault(name, []).append((row["length"], entry["ns_per_token_head"], entry["ratio"]))
    return found


def finish(axes: Any, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="tokens", title=title)
    axes.grid(alpha=0.3)
