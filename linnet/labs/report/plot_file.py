"""Charts as the file that `--plot` names: .html and .svg from our own engine, .png and .pdf from matplotlib.

    save(Path("ops.png"), "Causal attention on ...", [Chart(...), Chart(...)])

This is the only file that imports matplotlib: browsers render our SVG, but bitmaps and PDF need a renderer. Both draw
the same `Chart`, curves with linear or logarithmic axes; bars and heat maps have no bitmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...atomic import atomic
from ..core.chart import Chart
from .chart import STYLE, figure
from .chart_lines import Look, looks
from .page import figures, page
from .picture import ACROSS, INK, sheet

PAINTED = (".png", ".pdf")  # need matplotlib
KINDS = (*PAINTED, ".svg", ".html")
INCHES = (6.2, 4.0)  # of one chart
DOTS = 150  # per inch


def save(path: Path, title: str, charts: Sequence[Chart]) -> None:
    """Write the charts to one file atomically; its suffix, one of KINDS, selects the format."""
    look = looks(name for chart in charts for name in chart.series)
    with atomic(path) as file:
        if path.suffix.lower() in PAINTED:
            painted(title, charts, look).savefig(file, dpi=DOTS, format=path.suffix[1:].lower())
        elif path.suffix.lower() == ".svg":
            file.write(sheet(title, [chart.to_dict() for chart in charts]).encode())
        else:
            drawn = (figure(chart.to_dict(), f"chart-{i}", look) for i, chart in enumerate(charts))
            file.write(page(title, [figures(*drawn)], STYLE).encode())


def painted(title: str, charts: Sequence[Chart], look: dict[str, Look]) -> Any:
    """Return a matplotlib figure of the charts, two in a row, with one legend for all."""
    from matplotlib.figure import Figure

    across = min(ACROSS, len(charts))
    down = -(-len(charts) // across)
    canvas = Figure(figsize=(INCHES[0] * across, INCHES[1] * down + 0.4), layout="constrained")
    grid = canvas.subplots(down, across, squeeze=False).flatten()
    for axes, chart in zip(grid, charts, strict=False):
        _curves(axes, chart, look)
    for axes in grid[len(charts) :]:
        axes.set_axis_off()
    handles = {label: line for axes in grid for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    canvas.suptitle(title, fontsize=11)
    return canvas


def _curves(axes: Any, chart: Chart, look: dict[str, Look]) -> None:
    for name, points in chart.series.items():
        colour = INK if look[name].colour == "currentColor" else look[name].colour
        style = (0, [float(dash) for dash in look[name].dash.split()]) if look[name].dash else "-"
        x, y = [point[0] for point in points], [point[1] for point in points]
        axes.plot(x, y, color=colour, linestyle=style, marker="o", markersize=4, linewidth=1.6, label=name)
    scales = {True: "log", False: "linear"}
    axes.set(xscale=scales[chart.log_x], yscale=scales[chart.log_y], xlabel=chart.x, ylabel=chart.y, title=chart.title)
    axes.grid(alpha=0.3)
