"""`--plot FILE`: the same charts as a page, an SVG file, a bitmap or a PDF."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from linnet.labs.core.chart import Chart
from linnet.labs.report.chart_lines import looks
from linnet.labs.report.plot_file import KINDS, painted, save

TIMES = {"linear <native>": [(64, 1.0), (128, None), (256, 1.1)], "softmax": [(64, 1.0), (128, 2.0)]}
CHARTS = [
    Chart("Time", "tokens", "ms", TIMES, log_x=True, log_y=True),
    Chart("Memory", "tokens", "MiB", TIMES),
    Chart("Third", "tokens", "MiB", TIMES),
]
BEGINS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg xmlns", ".html": b"<!DOCTYPE html>"}


@pytest.mark.parametrize("suffix", KINDS)
def test_every_kind_is_written(suffix: str, tmp_path: Path) -> None:
    save(tmp_path / f"plot{suffix}", "Decoding & more", CHARTS)
    assert (tmp_path / f"plot{suffix}").read_bytes().startswith(BEGINS[suffix])


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_svg_and_html_need_no_matplotlib(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    save(tmp_path / f"plot{suffix}", "t", CHARTS)
    text = (tmp_path / f"plot{suffix}").read_text(encoding="utf-8")
    assert text.count("linear &lt;native&gt;") >= len(CHARTS)
    with pytest.raises(ImportError):
        save(tmp_path / "plot.png", "t", CHARTS)
    assert not (tmp_path / "plot.png").exists()


def test_the_svg_has_every_title_series_and_axis(tmp_path: Path) -> None:
    save(tmp_path / "plot.svg", "Decoding & more", CHARTS)
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("Decoding & more", "Time", "Memory", "Third", "tokens", "ms", "MiB", *TIMES):
        assert expected in words
    panels = [one.attrib["transform"] for one in root if one.tag.endswith("}g")]
    assert len(set(panels)) == 3


def test_the_painted_charts_have_the_same_points_axes_and_legend() -> None:
    canvas = painted("Decoding & more", CHARTS, looks(TIMES))
    first, second, third, empty = canvas.axes
    assert [axes.get_title() for axes in (first, second, third)] == ["Time", "Memory", "Third"]
    assert (first.get_xscale(), first.get_yscale(), second.get_xscale()) == ("log", "log", "linear")
    assert (first.get_xlabel(), first.get_ylabel()) == ("tokens", "ms")
    drawn = {line.get_label(): [*zip(line.get_xdata(), line.get_ydata(), strict=True)] for line in first.lines}
    assert drawn["softmax"] == [(64, 1.0), (128, 2.0)]
    assert drawn["linear <native>"][::2] == [(64, 1.0), (256, 1.1)]
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == [*TIMES]
    assert not empty.axison
