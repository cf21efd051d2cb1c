"""Heat maps of attention: one panel for each mixer, row t and column j as bright as token t weighs token j.

    heat_figure("maps", {"softmax": A, "rebased": B}, [(40, 7), (42, 3)], "caption")        A, B [T,T]

Each panel has its own scale, from 0 to the largest weight in it, which its title names; where weights go below zero,
red is above and blue below. A ring marks each cell of `targets`, the (row, column) where the answer stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .page import figure, svg

ACROSS = 3  # panels in a row
INCHES = 1.9  # height of a row
RING = "#ff2bd6"  # stands out on both scales


def heat_figure(name: str, maps: Mapping[str, Tensor], targets: Sequence[tuple[int, int]], caption: str) -> str:
    """A figure of HTML; `name` keeps its ids apart from those of other figures on the page. Needs matplotlib."""
    if not maps:
        raise ValueError("maps is empty; accepted: one or more, as {mixer: weights [T,T]}")
    for mixer, weights in maps.items():
        if weights.ndim != 2 or not weights.numel():
            raise ValueError(f"the map of {mixer!r} has shape {list(weights.shape)}; accepted: [rows, columns]")
        for row, column in targets:
            if not (0 <= row < weights.shape[0] and 0 <= column < weights.shape[1]):
                raise ValueError(f"target ({row}, {column}) is outside the map of {mixer!r}, {list(weights.shape)}")
    rows = math.ceil(len(maps) / ACROSS)

    def draw(canvas: Any) -> None:
        grid = canvas.subplots(rows, min(len(maps), ACROSS), squeeze=False).flatten()
        for axes, (mixer, weights) in zip(grid, maps.items(), strict=False):
            panel(axes, mixer, weights.detach().double().cpu(), targets)
        for axes in grid[len(maps) :]:
            axes.set_axis_off()

    return figure(svg(draw, name, height=INCHES * rows + 0.3), caption)


def panel(axes: Any, mixer: str, weights: Tensor, targets: Sequence[tuple[int, int]]) -> None:
    """One map, and the rings on it."""
    most = float(weights.abs().max())
    signed = bool((weights < 0).any())
    how = {"vmin": -most if signed else 0.0, "vmax": most or 1.0, "cmap": "RdBu_r" if signed else "viridis"}
    axes.imshow(weights.numpy(), interpolation="nearest", aspect="auto", **how)
    if targets:
        at = {"x": [column for _, column in targets], "y": [row for row, _ in targets]}
        axes.scatter(**at, s=14, facecolors="none", edgecolors=RING, linewidths=0.9)
    axes.set_title(f"{mixer}\nup to {most:.2g}", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(visible=False)
