"""A chart as a file of its own: well-formed SVG that shows the title, every series and nothing from outside."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from linnet.labs.report.picture import picture

CHART: dict[str, Any] = {
    "type": "chart",
    "title": "Time <by> length",
    "x": "tokens",
    "y": "ms",
    "series": {
        "linear": [[128, 1.0], [256, 2.0]],
        "softmax with a rather long name": [[128, 1.0], [256, 4.0, 3.5, 4.5]],
    },
    "kind": "lines",
    "log_x": True,
    "log_y": True,
    "caption": "",
}


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_it_is_whole_and_names_every_series(kind: str) -> None:
    text = picture({**CHART, "kind": kind, "log_x": kind == "lines"})
    root = ElementTree.fromstring(text)
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Time <by> length" in words
    assert all(name in words for name in CHART["series"])
    assert "href" not in text
    assert "<script" not in text
    assert "url(" not in text


def test_the_legend_makes_room_for_itself() -> None:
    def height(names: int) -> float:
        series = {f"a series of number {i}": [[1, 1], [2, 2]] for i in range(names)}
        return float(ElementTree.fromstring(picture({**CHART, "series": series})).attrib["height"])

    assert height(2) < height(6) < height(12)


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="has no value to draw"):
        picture({**CHART, "series": {"a": []}})
