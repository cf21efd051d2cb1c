"""The pages of `linnet recall`: say what their documents say, draw every mixer, and load nothing."""

from __future__ import annotations

import re
from copy import deepcopy
from html import unescape
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from linnet.labs.claims.rebased import studies
from linnet.labs.core.results import Row, make_row
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.document import document, study_document
from linnet.labs.report.page import COLOURS
from linnet.labs.report.recall import HEAD, against_bytes, against_step, cells_of, grouped, html, studies_html
from tests.labs.recall.made_up import around, made_up

SIZES = {"softmax": ((None, 32768, 1.0),), "based": ((2, 1560, 0.21), (4, 3900, 0.81)), "elu": ((6, 1560, 0.06),)}


def words(text: str) -> str:
    """What is there to read: no tags, no style sheet."""
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ")


def whole(row: Row) -> Row:
    """A made-up row with all that a document asks of it."""
    metrics = {"transition": None, "state_bytes": row["metrics"]["mixer_bytes"] + 512, **row["metrics"]}
    return make_row(row["config"], metrics, 7.0, {"parameters": 1000})


@pytest.fixture(scope="module")
def sweep() -> dict[str, Any]:
    rows = []
    for length in (64, 128):
        for mixer, sizes in SIZES.items():
            for width, size, accuracy in sizes:
                config = RecallConfig(mixer=mixer, key_dim=width, seq_len=length)
                rows += [whole(row) for row in made_up(config, around(accuracy), mixer_bytes=size)]
    result = document(rows, 1.5)
    for cell in result["cells"]:
        cell["curve"] = [[40, 0.1], [80, cell["accuracy"]["mean"]]]
    return result


def test_the_page_says_what_the_document_says(sweep: dict[str, Any]) -> None:
    text = html(sweep)
    read = words(text)
    for cell in sweep["cells"]:
        for shown in cells_of(cell):
            assert shown in read
    assert "24 runs in 1.5 minutes" in read
    assert re.search(r"mqar, 128 tokens, 16 pairs, d_model 64 .*Bars: 95 %", read)
    assert text.count('role="img"') == 4  # two lengths, against bytes and against step
    assert not re.search(r"<(script|link|img|iframe)\b|@import|\bsrc=", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_without_curves_there_is_no_figure_of_them(sweep: dict[str, Any]) -> None:
    cells = [{name: value for name, value in cell.items() if name != "curve"} for cell in sweep["cells"]]
    text = html({**sweep, "cells": cells})
    assert text.count('role="img"') == 2
    assert "against step" not in text


def test_a_group_is_what_may_be_compared(sweep: dict[str, Any]) -> None:
    assert [len(cells) for cells in grouped(sweep["cells"]).values()] == [4, 4]
    alone = {**sweep["cells"][0], "config": RecallConfig(mixer="softmax", first="", filler="random").to_dict()}
    assert [*grouped([alone])] == ["mqar, 64 tokens, 16 pairs, d_model 64, filler random, first nothing"]


def drawn(text: str) -> tuple[list[str], ElementTree.Element]:
    """The names of the series, and the SVG element."""
    match = re.search(r"<svg viewBox[^>]* role=.*?</svg>", text, re.DOTALL)
    assert match is not None
    return re.findall(r"<span>(.*?)</span>", text), ElementTree.fromstring(match[0])


def titles(svg: ElementTree.Element, number: int) -> list[str]:
    return [title.text or "" for title in svg.findall(f"g[@class='s{number}']/path/title")]


def test_drawn_against_bytes(sweep: dict[str, Any]) -> None:
    cells = deepcopy(sweep["cells"][:4])
    next(cell for cell in cells if cell["mixer_bytes"] == 3900)["accuracy"]["low"] = 0.7
    names, svg = drawn(against_bytes("about", cells, "bytes"))
    assert names == ["based", "elu", "softmax"]
    assert titles(svg, 0)[0].startswith("based, 1,560: 0.21 [")
    assert titles(svg, 0)[1] == "based, 3,900: 0.81 [0.7, 0.835]"
    (dashed,) = [path for path in svg.iter("path") if path.get("stroke-dasharray")]
    assert dashed.get("stroke") == "currentColor"
    assert dashed in list(svg.findall("g[@class='s2']/path"))
    (marker,) = [path.attrib["d"] for path in svg.findall("g[@class='s2']/path[@class='p']")]
    left, height, right = re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)", dashed.attrib["d"]).groups()  # type: ignore[union-attr]
    assert marker.split()[1].startswith(height)  # at its accuracy
    assert float(left) < 60 < 340 < float(right)  # across the whole width


def test_drawn_against_step(sweep: dict[str, Any]) -> None:
    names, svg = drawn(against_step("about", sweep["cells"][:4], "steps"))
    assert names == ["based f=2", "based f=4", "elu f=6", "softmax"]
    assert titles(svg, 1) == ["based f=4, 40: 0.1", "based f=4, 80: 0.81"]
    lines = [svg.findall(f"g[@class='s{i}']/path[@fill='none']")[0] for i in range(4)]
    assert [line.get("stroke") for line in lines] == [COLOURS[0], COLOURS[0], COLOURS[1], "currentColor"]
    assert lines[0].get("stroke-dasharray") != lines[1].get("stroke-dasharray")


def test_cells_with_one_label_are_both_drawn(sweep: dict[str, Any]) -> None:
    cell = sweep["cells"][0]
    names, _ = drawn(against_step("about", [cell, cell], "steps"))
    assert len(names) == len(set(names)) == 2


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    rows = made_up(RecallConfig(mixer="softmax"), [0.98, 0.99, 1.0], mixer_bytes=32768)
    return study_document(studies()["shift"], [whole(row) for row in rows], 0.5)


def test_studies_on_one_page(study: dict[str, Any]) -> None:
    failed = {"name": "learned", "passed": False, "detail": "softmax reaches 0.05", "short": "", "always": True}
    other = {**study, "name": "other", "statement": "All <b> are escaped.", "outcome": "holds", "controls": [failed]}
    text = studies_html([study, other])
    read = words(text)
    for name in ("statement", "source", "rule", "sentence", "change"):
        assert study[name] in read
    assert "not tested here. Not tested: rows are missing" in read
    assert "softmax, nothing, 1, none: 0 seeds" in read
    assert "✓ holds" in read
    assert "failed: softmax reaches 0.05" in read
    assert "0.990 [0.965, 1.000]" in read
    assert "<b>" not in text
    assert "All <b> are escaped." in read
    assert text.count("<svg") == 0


def test_maps_of_a_study_are_drawn(study: dict[str, Any]) -> None:
    maps = {"softmax": torch.eye(4).tolist(), "rebased": torch.full((4, 4), 0.25).tolist()}
    drawn = {"caption": "weights of one sequence", "maps": maps, "targets": [[3, 1]]}
    text = studies_html([{**study, "maps": [drawn, drawn]}])
    assert text.count('role="img"') == 4
    assert "weights of one sequence" in words(text)
    assert "up to 0.25" in words(text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no study to show; accepted: one or more documents"):
        studies_html([])


def test_a_row_of_the_table_is_as_long_as_its_head(sweep: dict[str, Any]) -> None:
    assert {len(cells_of(cell)) for cell in sweep["cells"]} == {len(HEAD)}
