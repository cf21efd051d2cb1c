"""Heat maps of attention: one figure per mixer; the shade of row t and column j is the weight of token j for token t.

    heat_figures("maps", {"softmax": A, "rebased": B}, [(40, 7), (42, 3)], "caption")        A, B [T,T]

Each map has its own scale, from 0 to its largest weight, which its title names; weights below zero are red. A ring
marks each cell of `targets`, the (row, column) of the right value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..core.chart import Heat
from .chart import figure
from .page import figures, paragraph

Targets = Sequence[tuple[int, int]]


def heat_figures(name: str, maps: Mapping[str, Tensor], targets: Targets, caption: str) -> str:
    """Return the figures as HTML, under their caption; `name` is the prefix of their ids."""
    if not maps:
        raise ValueError("maps is empty; accepted: one or more, as {mixer: weights [T,T]}")
    described = [heat_map(mixer, weights, targets) for mixer, weights in maps.items()]
    drawn = [figure(one.to_dict(), f"{name}-{i}") for i, one in enumerate(described)]
    return (paragraph(caption) if caption else "") + figures(*drawn)


def heat_map(mixer: str, weights: Tensor, targets: Targets) -> Heat:
    """Describe one map, positions counted from 1."""
    if weights.ndim != 2 or not weights.numel():
        raise ValueError(f"the map of {mixer!r} has shape {list(weights.shape)}; accepted: [rows, columns]")
    for row, column in targets:
        if not (0 <= row < weights.shape[0] and 0 <= column < weights.shape[1]):
            raise ValueError(f"target ({row}, {column}) is outside the map of {mixer!r}, {list(weights.shape)}")
    most = float(weights.abs().max())
    rows, columns = ([str(i + 1) for i in range(size)] for size in weights.shape)
    values = weights.detach().double().cpu().tolist()
    return Heat(f"{mixer}, up to {most:.2g}", rows, columns, values, most=most, marked=targets)
