"""The figure of `linnet bench decode --plot`: state and time per token against position, all axes logarithmic.

Linear attention is the flat line in both charts; softmax attention keeps every key and value, and reads them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.chart import Chart
from ..report.plot_file import save

Row = dict[str, Any]
NAMES = {"linear": "linear attention ({engine})", "softmax": "softmax, preallocated cache (torch)"}
TITLES = (("State of one stream", "MiB"), ("Time per token", "milliseconds per token"))


def draw(document: Row, path: Path) -> None:
    """Write two charts of the row of the section curve."""
    (row,) = document["rows"]["curve"]
    machine = f"{document['machine']['name']}, threads {row['threads']}"
    save(path, f"Decoding with the {document['preset']} model on {machine}", charts(row))


def charts(row: Row) -> list[Chart]:
    curves = {label.format(engine=row["engine"]): lines(row, name) for name, label in NAMES.items()}
    drawn = []
    for which, (title, y) in enumerate(TITLES, 1):
        series = {name: [(point[0], point[which]) for point in points] for name, points in curves.items() if points}
        drawn.append(Chart(title, "tokens so far", y, series, log_x=True, log_y=True))
    return drawn


def lines(row: Row, name: str) -> list[tuple[int, float, float]]:
    """Return (token, MiB, ms per token) of each point that was measured."""
    points = [(one["token"], one["state_bytes"][name], one["seconds"][name]) for one in row["points"]]
    return [(token, held / 2**20, seconds * 1e3) for token, held, seconds in points if seconds is not None]
