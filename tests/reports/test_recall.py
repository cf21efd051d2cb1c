"""The pages of `linnet recall`: say what their documents say, draw every mixer, and load nothing."""

from __future__ import annotations

import re
from copy import deepcopy
from html import unescape
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from linnet.experiments.recall.config import RecallConfig
from linnet.experiments.recall.document import document, study_document
from linnet.experiments.recall.studies import STUDIES
from linnet.experiments.results import Row, make_row
from linnet.reports.page import INK
from linnet.reports.recall import HEAD, against_bytes, against_step, cells_of, grouped, html, studies_html
from tests.experiments.recall.made_up import around, made_up

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
    found = document(rows, 1.5)
    for cell in found["cells"]:
        cell["curve"] = [[40, 0.1], [80, cell["accuracy"]["mean"]]]
    return found


def test_the_page_says_what_the_document_says(sweep: dict[str, Any]) -> None:
    text = html(sweep)
    read = words(text)
    for cell in sweep["cells"]:
        for shown in cells_of(cell):
            assert shown in read
    assert "24 runs in 1.5 minutes" in read
    assert "mqar, 128 tokens, 16 pairs, d_model 64. Bars" in read
    assert text.count("<svg") == 4  # two lengths, against bytes and against step
    assert not re.search(r"<(script|link|img|iframe)\b|@import|\bsrc=", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_without_curves_there_is_no_figure_of_them(sweep: dict[str, Any]) -> None:
    cells = [{name: value for name, value in cell.items() if name != "curve"} for cell in sweep["cells"]]
    text = html({**sweep, "cells": cells})
    assert text.count("<svg") == 2
    assert "against step" not in text


def test_a_group_is_what_may_be_compared(sweep: dict[str, Any]) -> None:
    assert [len(cells) for cells in grouped(sweep["cells"]).values()] == [4, 4]
    alone = {**sweep["cells"][0], "config": RecallConfig(mixer="softmax", first="", filler="random").to_dict()}
    assert [*grouped([alone])] == ["mqar, 64 tokens, 16 pairs, d_model 64, filler random, first nothing"]


def test_drawn_against_bytes(sweep: dict[str, Any]) -> None:
    canvas, cells = Figure(), deepcopy(sweep["cells"][:4])
    next(cell for cell in cells if cell["mixer_bytes"] == 3900)["accuracy"]["low"] = 0.7
    against_bytes(canvas, cells)
    (axes,) = canvas.axes
    assert axes.get_xscale() == "log"
    drawn = {bars.get_label(): bars.lines[0].get_xydata().tolist() for bars in axes.containers}
    assert list(drawn) == ["based", "elu", "softmax"]
    assert drawn["based"] == [[1560, pytest.approx(0.21)], [3900, pytest.approx(0.81)]]
    low, high = axes.containers[0].lines[2][0].get_segments()[1][:, 1]
    assert (low, high) == (pytest.approx(0.7), pytest.approx(0.82))
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed.get_xydata().tolist() == [[1560, 1.0], [32768, 1.0]]
    assert dashed.get_color() == INK


def test_drawn_against_step(sweep: dict[str, Any]) -> None:
    canvas = Figure()
    against_step(canvas, sweep["cells"][:4])
    lines = {line.get_label(): line for line in canvas.axes[0].lines}
    assert list(lines) == ["based f=2", "based f=4", "elu f=6", "softmax"]
    assert lines["based f=4"].get_xydata().tolist() == [[40, 0.1], [80, pytest.approx(0.81)]]
    assert lines["based f=2"].get_color() == lines["based f=4"].get_color() != lines["elu f=6"].get_color()
    assert lines["based f=2"].get_linestyle() != lines["based f=4"].get_linestyle()


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    rows = made_up(RecallConfig(mixer="softmax"), [0.98, 0.99, 1.0], mixer_bytes=32768)
    return study_document(STUDIES["shift"], [whole(row) for row in rows], 0.5)


def test_studies_on_one_page(study: dict[str, Any]) -> None:
    other = {**study, "name": "other", "question": "Is <b> escaped?", "outcome": "confirmed"}
    text = studies_html([study, other])
    read = words(text)
    for name in ("question", "expected", "rule", "sentence"):
        assert study[name] in read
    assert "Not testable. softmax, nothing, 1, none: 0 seeds" in read
    assert "Confirmed." in read
    assert "0.990 [0.980, 1.000]" in read
    assert "<b>" not in text
    assert "Is <b> escaped?" in read
    assert text.count("<svg") == 0


def test_maps_of_a_study_are_drawn(study: dict[str, Any]) -> None:
    maps = {"softmax": torch.eye(4).tolist(), "rebased": torch.full((4, 4), 0.25).tolist()}
    drawn = {"caption": "weights of one sequence", "maps": maps, "targets": [[3, 1]]}
    text = studies_html([{**study, "maps": [drawn, drawn]}])
    assert text.count("<svg") == 2
    assert "weights of one sequence" in words(text)
    assert "up to 0.25" in words(text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no study to show; accepted: one or more documents"):
        studies_html([])


def test_a_row_of_the_table_is_as_long_as_its_head(sweep: dict[str, Any]) -> None:
    assert {len(cells_of(cell)) for cell in sweep["cells"]} == {len(HEAD)}
