"""Charts: every value in its place, nothing lost in silence, no curve that cannot be told apart or switched off."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from xml.etree import ElementTree

import pytest

from linnet.labs.report.axes import (
    Axis,
    at_values,
    fitting,
    linear_ticks,
    log_ticks,
    reach,
    short,
    shortened,
    tick_label,
)
from linnet.labs.report.chart import MOST, STYLE, description, figure
from linnet.labs.report.chart_bars import DEEPEST
from linnet.labs.report.chart_lines import looks
from linnet.labs.report.page import COLOURS
from tests.labs.report.made_up import bars, chart, heat

NAN, INF = float("nan"), float("inf")


def drawing(spec: dict[str, Any]) -> ElementTree.Element:
    """The SVG element, read by a parser that takes nothing but well-formed text."""
    text = re.search(r"<svg viewBox[^>]* role=.*?</svg>", figure(spec, "c"), re.DOTALL)
    assert text is not None
    return ElementTree.fromstring(text[0])


def group(svg: ElementTree.Element, number: int) -> ElementTree.Element:
    spec = svg.find(f"g[@class='s{number}']")
    assert spec is not None
    return spec


def marks(spec: dict[str, Any], number: int = 0) -> list[tuple[float, float]]:
    """Where the markers of a series are."""
    drawn = [path.attrib["d"] for path in group(drawing(spec), number).iter("path") if path.get("class") == "p"]
    places = [re.match(r"M([-\d.]+) ([-\d.]+)", path) for path in drawn]
    return [(float(at[1]), float(at[2])) for at in places if at]


def tooltips(spec: dict[str, Any], number: int = 0) -> list[str]:
    return [title.text or "" for title in group(drawing(spec), number).iter("title")]


def words(spec: dict[str, Any]) -> list[str]:
    return [text.text or "" for text in drawing(spec).iter("text")]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-1, 1, [-1, -0.5, 0, 0.5, 1]), (995, 1005, [996, 998, 1000, 1002, 1004])],
)
def test_linear_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert linear_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.5, 2000, [1, 10, 100, 1000]),
        (1e-9, 1e9, [1e-9, 1e-5, 1e-1, 1e3, 1e7]),
        (3, 80, [5, 10, 20, 50]),
        (4.1, 4.9, [4.2, 4.4, 4.6, 4.8]),
    ],
)
def test_log_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01, "0.01"), (1e4, "10,000"), (2.5e6, "2.5M"), (1e-6, "10⁻⁶"), (2e-4, "2×10⁻⁴"), (1e15, "10¹⁵")],
)
def test_labels_of_ticks(value: float, text: str) -> None:
    assert tick_label(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (NAN, "-"), (0, "0"), (0.6443, "0.644"), (3e-7, "3 × 10⁻⁷"), (12345.6, "12,346"), (123.45, "123.5")],
)
def test_values_in_words(value: float | None, text: str) -> None:
    assert short(value) == text


def test_places_on_an_axis() -> None:
    assert [Axis(0, 10, False, 100, 200).place(v) for v in (0, 5, 10)] == [100, 150, 200]
    assert [Axis(1, 100, True, 200, 0).place(v) for v in (1, 10, 100)] == pytest.approx([200, 100, 0])
    assert reach([3.0, 3.0], False) == pytest.approx((2.7, 3.3))
    assert reach([0.0], False) == (-1, 1)
    assert reach([5.0], True) == (2.5, 10)
    assert reach([8.0, 10.0], False, zero=True)[0] == 0
    assert reach([8.0, 10.0], False)[0] > 7
    assert reach([-8.0, -10.0], False, zero=True)[1] == 0


def test_ticks_stand_at_the_values_if_they_are_few_and_fit() -> None:
    assert at_values(Axis(60, 260, True, 0, 300), [64, 128, 256, 64]) == [64, 128, 256]
    assert 64 not in at_values(Axis(0, 5000, False, 0, 300), [64, 128, 4096])
    assert fitting([0, 10, 20, 30], ["1000"] * 4) == [0]
    assert fitting([0, 20, 40, 60], ["10"] * 4) == [0, 1, 2, 3]
    assert shortened("a long name", 6.16 * 11) == "a long name"
    assert shortened("a long name", 6.16 * 6) == "a lon…"


def test_every_point_is_in_its_place_and_tells_its_value() -> None:
    spec = chart(series={"a": [[0, 0], [5, 5], [10, 10]], "b": [[0, 10, 8, 12], [10, 0]]})
    (x0, y0), (x1, y1), (x2, y2) = marks(spec)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # up is more
    assert marks(spec, 1) == [(x0, y2), (x2, y0)]
    assert tooltips(spec) == ["a, 0: 0", "a, 5: 5", "a, 10: 10"]
    assert tooltips(spec, 1)[0] == "b, 0: 10 [8, 12]"


def test_equal_ratios_are_equally_far_on_log_axes() -> None:
    spec = chart(series={"a": [[1, 0.01], [10, 1], [100, 100]]}, log_x=True, log_y=True)
    (x0, y0), (x1, y1), (x2, y2) = marks(spec)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_a_value_that_is_missing_leaves_a_gap() -> None:
    spec = chart(series={"a": [[1, 1], [2, 2], [3, None], [4, NAN], [5, 3], [6, INF], [7, 4], [8, 5]]})
    svg = group(drawing(spec), 0)
    lines = [path.attrib["d"] for path in svg.iter("path") if path.get("fill") == "none"]
    assert [line.count("L") for line in lines] == [1, 1]
    assert len(marks(spec)) == 5
    assert "cannot stand" not in figure(spec, "c")


def test_what_a_log_axis_cannot_show_is_said() -> None:
    spec = chart(series={"a": [[1, 0], [2, -1], [0, 3], [3, 4]]}, log_x=True, log_y=True)
    assert len(marks(spec)) == 1
    assert "3 values at or below zero cannot stand on a logarithmic axis." in figure(spec, "c")
    assert "1 value at or below zero" in figure(chart(series={"a": [[1, 0], [2, 1]]}, log_y=True), "c")


def test_intervals_are_bars_of_few_points_and_a_band_of_many() -> None:
    few = group(drawing(chart(series={"a": [[i, i, i - 1, i + 1] for i in range(4)]})), 0)
    many = group(drawing(chart(series={"a": [[i, i, i - 1, i + 1] for i in range(20)]})), 0)
    assert not [path for path in few.iter("path") if path.get("fill-opacity")]
    (bars_of_it,) = [path.attrib["d"] for path in few.iter("path") if path.get("stroke-width") == "1.2"]
    assert bars_of_it.count("V") == 4
    (band,) = [path.attrib["d"] for path in many.iter("path") if path.get("fill-opacity")]
    assert band.count("L") == 39


def test_a_curve_is_cut_where_it_leaves_the_range_of_y() -> None:
    series = {"a": [[0, 0], [10, 20], [20, 0]], "far": [[0, 50], [20, 60]], "flat": [[0, 10], [20, 10]]}
    spec = chart(series=series, y_range=(0, 10))
    svg = drawing(spec)
    (line,) = [path.attrib["d"] for path in group(svg, 0).iter("path") if path.get("fill") == "none"]
    places = [tuple(map(float, at.split())) for at in re.split("[ML]", line)[1:]]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = places
    assert y0 == y3 > y1 == y2  # up to the upper end, and down from it
    assert x1 - x0 == pytest.approx((x3 - x0) / 4, abs=0.2)
    assert x3 - x2 == pytest.approx((x3 - x0) / 4, abs=0.2)
    assert [len(marks(spec, i)) for i in range(3)] == [2, 0, 2]
    assert not list(group(svg, 1).iter("path"))
    assert "60" in figure(spec, "c").partition("<details")[2]  # the table has it


def test_an_interval_ends_where_the_range_of_y_does() -> None:
    svg = group(drawing(chart(series={"a": [[0, 5, -5, 30], [1, 5]]}, y_range=(0, 10))), 0)
    (bar,) = [path.attrib["d"] for path in svg.iter("path") if path.get("stroke-width") == "1.2"]
    low, high = (float(at) for at in re.findall(r"^M[\d.]+ ([\d.]+)V([\d.]+)", bar)[0])
    inside = [
        float(text.attrib["y"]) - 4 for text in drawing(chart(y_range=(0, 10))).iter("text") if text.text in "0 10"
    ]
    assert sorted([low, high]) == pytest.approx(sorted(inside), abs=0.2)


def test_a_range_of_x_is_shaded_and_a_level_runs_across() -> None:
    spec = chart(series={"a": [[0, 1], [10, 2]], "b": [[5, 3]]}, shade=(2, 30), levels={"b": 3})
    svg = drawing(spec)
    (box,) = svg.findall("rect")
    (x0, _), (x1, _) = marks(spec)
    assert float(box.attrib["x"]) == pytest.approx(x0 + (x1 - x0) / 5, abs=0.2)
    end = float(box.attrib["x"]) + float(box.attrib["width"])
    assert x1 < end <= 348.1  # no further than the axis
    (level,) = [path.attrib["d"] for path in group(svg, 1).iter("path") if path.get("stroke-dasharray")]
    ((_, height),) = marks(spec, 1)
    assert re.fullmatch(rf"M[\d.]+ {height}H348.0", level)


def test_twelve_curves_differ() -> None:
    names = [f"model {i}" for i in range(12)]
    assert len({(look.colour, look.dash) for look in looks(names).values()}) == 12
    assert {look.colour for look in looks(names).values()} == set(COLOURS)
    svg = drawing(chart(series={name: [[1, i], [2, i + 1]] for i, name in enumerate(names)}))
    drawn = [group(svg, i)[0] for i in range(12)]
    assert len({line.attrib["stroke"] + line.get("stroke-dasharray", "") for line in drawn}) == 12


def test_what_a_paper_printed_looks_like_its_counterpart_here() -> None:
    spec = looks(["ridge", "ridge paper", "GD", "GD, the paper's", "the paper's best", "newspaper"])
    assert [look.number for look in spec.values()] == [0, 1, 2, 3, 4, 5]
    assert spec["ridge paper"].colour == spec["ridge"].colour == COLOURS[0]
    assert spec["GD, the paper's"].colour == spec["GD"].colour == COLOURS[1]
    assert spec["the paper's best"].colour == "currentColor"
    assert spec["newspaper"].colour == COLOURS[2]
    assert not spec["ridge"].dash
    assert not spec["ridge"].lighter()
    assert spec["ridge paper"].dash
    assert spec["ridge paper"].lighter()


def test_every_curve_of_several_can_be_switched_off() -> None:
    text = figure(chart(), "copy-0", looks(["soft<max", "b", "c", "d", "linear"]))
    for number, name in ((4, "linear"), (0, "soft&lt;max")):
        assert f'<input type="checkbox" id="copy-0-k{number}" class="k{number}" checked' in text
        assert re.search(rf'<label class="key" for="copy-0-k{number}">.*?<span>{name}</span>', text)
        assert f'<g class="s{number}">' in text
        assert f".k{number}:not(:checked) ~ svg .s{number}" in STYLE
    assert text.index("<input") < text.index('<svg viewBox="0 0 360')  # "~" reaches only what follows
    alone = figure(chart(series={"a": [[1, 2]]}), "c")
    assert "<input" not in alone
    assert "<span>a</span>" in alone
    many = figure(chart(series={f"m{i}": [[1, i]] for i in range(MOST + 2)}), "c")
    assert many.count("<input") == MOST


def test_words_stand_in_a_row_where_x_is_words() -> None:
    spec = chart(series={"a": [["U2", 1], ["U5", 2]], "b": [["U5", 3], ["{1, 3}", 4]]})
    first, second = marks(spec), marks(spec, 1)
    assert first[0][0] < first[1][0] == second[0][0] < second[1][0]
    assert {"U2", "U5", "{1, 3}"} <= set(words(spec))
    assert tooltips(spec)[0] == "a, U2: 1"


def test_bars_are_as_long_as_their_values_from_zero() -> None:
    spec = bars()
    here, paper = (list(group(drawing(spec), i).iter("rect")) for i in (0, 1))
    wide = [float(rect.attrib["width"]) for rect in here]
    assert wide[0] == pytest.approx(2 * wide[1], abs=0.2)
    assert float(paper[0].attrib["width"]) == pytest.approx(2 * wide[0], abs=0.2)
    assert len(paper) == 1
    assert "-" in words(spec)  # the paper's value that is missing
    assert tooltips(spec) == ["here, linear: 2 [1.5, 2.5]", "here, softmax: 1"]
    assert paper[0].attrib["fill"] == "currentColor"
    below = list(group(drawing(bars(series={"a": [["x", -2.0], ["y", 2.0]]})), 0).iter("rect"))
    left, right = (float(rect.attrib["x"]) for rect in below)
    assert left + float(below[0].attrib["width"]) == pytest.approx(right, abs=0.2)


def test_long_names_of_bars_stand_above_them() -> None:
    name = "softmax that computes every prefix again"
    svg = drawing(bars(series={"a": [[name, 1.0], ["b", 2.0]]}))
    (label,) = [text for text in svg.iter("text") if text.text == name]
    rect = next(group(svg, 0).iter("rect"))
    assert float(label.attrib["y"]) < float(rect.attrib["y"])
    assert float(rect.attrib["x"]) < 10


def test_shades_are_as_deep_as_their_values() -> None:
    spec = heat()
    cells = list(drawing(spec).iter("rect"))
    deep = [float(cell.attrib["fill-opacity"]) for cell in cells]
    assert deep == pytest.approx([0, DEEPEST / 2, DEEPEST, DEEPEST / 4, 0, DEEPEST * 0.75], abs=0.006)
    assert [cell[0].text for cell in cells][3:5] == ["taylor, copy: 0.25", "taylor, recall: -"]
    assert {"elu", "taylor", "copy", "recall", "text", "0.50", "1.00", "-"} <= set(words(spec))
    outside = [
        float(cell.attrib["fill-opacity"]) for cell in drawing(heat(values=[[-3, 0, 7], [0, 0, 0]])).iter("rect")
    ]
    assert outside[:3] == [0, 0, DEEPEST]
    large = heat(rows=range(40), columns=range(40), values=[[0.5] * 40] * 40)
    assert len(list(drawing(large).iter("rect"))) == 1600
    assert "0.50" not in words(large)


def test_those_who_do_not_see_it_are_told() -> None:
    text = figure(chart(), "copy-0")
    assert 'role="img" aria-labelledby="copy-0-title" aria-describedby="copy-0-desc"' in text
    assert '<figcaption id="copy-0-title">Time &amp; length</figcaption>' in text
    assert "linear: 1 at 64 to 4 at 256; soft&lt;max: 8 at 64 to 9 at 256." in text
    assert unescape(description(heat())) == "Shades of 2 rows by 3 columns."


def test_the_table_has_every_value() -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", figure(chart(), "c").partition("<details")[2])
    cells = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]
    assert cells[0] == ["tokens", "linear", "soft&lt;max"]
    assert cells[1:] == [["64", "1 [0.9, 1.2]", "8"], ["128", "2 [1.8, 2.2]", ""], ["256", "4 [3.9, 4.4]", "9"]]
    shades = figure(heat(), "c").partition("<details")[2]
    assert "<td>taylor</td><td>0.25</td><td>-</td><td>0.75</td>" in shades


ODD = {
    "one point": [[3, 0.5]],
    "all equal": [[1, 2], [2, 2], [3, 2]],
    "all zero": [[0, 0], [0, 0]],
    "tiny": [[1, 1e-300], [2, 2e-300]],
    "huge": [[1, 1e300], [2, 2e300]],
    "wide": [[1e-12, 1e-12, 1e-13, 1e-11], [1e12, 1e12]],
    "all there is": [[1, 1e-300], [2, 1e300]],
    "half an interval": [[1, 2, None, 3], [2, 3, 1, None]],
    "below zero": [[-5, -1, -2, 0], [5, -3]],
    "names": [["a" * 200, 1], ["<&>\"'", 2]],
}


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("kind", ["lines", "bars"])
@pytest.mark.parametrize("points", ODD.values(), ids=ODD)
def test_odd_values_are_drawn(points: list[list[Any]], kind: str, log: bool) -> None:
    series = {"odd <&>": points, "empty": [], "none": [[1, None], [None, 1]]}
    spec = chart(series=series, kind=kind, log_x=log, log_y=log, title="<t>", x="<x>" * 30, y="<y>" * 30)
    text = figure(spec, "c")
    assert not re.search(r'="[^"]*\b(nan|inf)', text)
    assert "<t>" not in text
    if "nothing to draw" not in text:
        height = float(drawing(spec).attrib["viewBox"].split()[3])
        for rect in drawing(spec).iter("rect"):
            assert 0 <= float(rect.attrib["x"]) <= 360
        assert all(-1 <= y <= height for _, y in (marks(spec) if kind == "lines" else []))


@pytest.mark.parametrize(
    "spec",
    [
        chart(series={}),
        chart(series={"a": []}),
        chart(series={"a": [[1, None]]}),
        chart(series={"a": [[1, -1]]}, log_y=True),
        bars(series={"a": [["x", None]]}),
        heat(rows=[], values=[]),
    ],
)
def test_nothing_to_draw_is_said(spec: dict[str, Any]) -> None:
    text = figure(spec, "c")
    assert "There is nothing to draw: no value was found." in text
    assert "<svg" not in text
