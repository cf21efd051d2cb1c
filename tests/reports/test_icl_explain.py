"""The page of `linnet icl explain`: says what the document says, of every kind of model, and loads nothing."""

from __future__ import annotations

import re
from copy import deepcopy
from html import unescape
from typing import Any

import pytest

from linnet.icl.explain import explain
from linnet.reports.icl_explain import html, percent, shown
from linnet.reports.icl_explain_figures import LEAST, floored, number, without
from tests.icl.explained import small


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    return explain(small("full", layers=3), sequences=30, ablation=False)


@pytest.fixture(scope="module")
def diag() -> dict[str, Any]:
    score = {"mean": 0.5, "se": 0.1, "median": 0.4, "trimmed": 0.45, "diverged": 0.25}
    rows = [
        {"without": "nothing", "plain": {**score}, "refit": {**score}},
        {"without": "yx", "plain": {**score}, "refit": None},
    ]
    return {**explain(small(), sequences=30, ablation=False), "ablation": rows}


@pytest.fixture(scope="module")
def page(diag: dict[str, Any]) -> str:
    return html(diag)


def words(text: str) -> str:
    """What is there to read: no tags, no style sheet."""
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ")


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_it_says_what_the_document_says(kind: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(kind)
    text = words(request.getfixturevalue("page") if kind == "diag" else html(document))
    for layer in document["layers"]:
        assert layer["sentence"] in text
        assert shown(layer["omega"]["yx"]) in text
    for row in document["profile"]:
        assert shown(row["scores"]["model"]["mean"]) in text
    assert shown(document["distances"][-1]["newton"]) in text
    assert f"{kind.upper()}, {document['model']['layers']} layers, U2" in text
    assert "Made with: noise U2, recipe none." in text
    assert ("nearest DIAG weights" in text) == (kind == "full")
    assert ("What each omega is worth" in text) == (kind == "diag")


def test_it_loads_nothing_from_outside(page: str) -> None:
    assert not re.search(r"<(script|link|img|iframe)\b|@import|\bsrc=", page)
    assert set(re.findall(r"url\((.)", page)) == {"#"}
    assert set(re.findall(r'href="(.)', page)) == {"#"}
    addresses = re.findall(r'([\w:]+)="http', page)
    assert set(addresses) <= {"xmlns", "xmlns:xlink"}  # names of SVG, which nothing fetches
    assert page.count("<svg") == 8
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_overflow_is_said_and_drawn_as_a_gap(diag: dict[str, Any]) -> None:
    document = deepcopy(diag)
    document["profile"][-1]["scores"]["model"]["mean"] = None
    document["layers"][0]["at"][1]["step"] = None
    document["ablation"][1]["plain"]["mean"] = None
    document["score"]["sharp"] = None
    document["model"]["made"] = {"noise": "<script>alert(1)</script>", "losses": [1, 2]}
    text = html(document)
    assert words(text).count("overflow") == 3
    assert "<script>" not in text  # what a model says of itself is only text
    assert "losses" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "overflow"), (0.0, "0"), (3e-30, "0"), (0.12345, "0.123"), (-0.00042, "-4.20e-04"), (4.4e6, "4.4e+06")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert shown(value) == text


def test_small_things() -> None:
    assert percent(0.0675) == "6.75 %"
    assert percent(None) == "-"
    assert floored([0.0, 2.0]) == [LEAST, 2.0]
    assert number(None) != number(None)
    assert without({"without": "xy and yy"}) == "ω_xy and ω_yy"
    assert without({"without": "nothing"}) == "nothing"
