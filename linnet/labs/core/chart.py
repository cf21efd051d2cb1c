"""Charts as data: what is drawn, not how; one description for the report, recall, explain and bench pages.

    Chart("Time by length", "tokens", "ms", {"linear": [(64, 1.0), (128, 2.0, 1.8, 2.2)]}, log_x=True)
    Heat("Who can do what", rows=["elu"], columns=["copy", "recall"], values=[[0.5, None]])

`to_dict` is the form that documents and JSON carry; linnet/labs/report/chart.py draws it as SVG inside a page,
report/picture.py as an SVG file, report/plot_file.py as the kind of file that `--plot` names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Chart:
    """Curves or bars; a point is (x, y) or (x, y, low, high), and a y of None leaves a gap.

    kind "bars": x is the name of a group, in which the series are drawn side by side.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Sequence[Any]]]
    kind: str = "lines"
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    y_range: tuple[float, float] | None = None  # ends of the y axis; curves are clipped there
    shade: tuple[float, float] | None = None  # a range of x with a grey background
    levels: Mapping[str, float] = field(default_factory=dict)  # series -> y of a dashed line across the whole width

    def to_dict(self) -> dict[str, Any]:
        return {"type": "chart", **asdict(self)}


@dataclass(frozen=True)
class Heat:
    """A heat map, rows x columns: shares from 0 to 1, or values from -most to most with red below zero."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    caption: str = ""
    most: float | None = None  # the magnitude of the deepest shade
    marked: Sequence[tuple[int, int]] = ()  # cells (row, column) with a ring

    def to_dict(self) -> dict[str, Any]:
        return {"type": "heat", **asdict(self)}
