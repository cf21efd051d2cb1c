"""The page of `linnet icl explain`: says what the document says, of every kind of model, and loads nothing."""

from __future__ import annotations

import re
from copy import deepcopy
from html import unescape
from typing import Any

import pytest

from linnet.labs.icl.explain import explain
from linnet.labs.report.icl_explain import html, percent, shown, warnings
from linnet.labs.report.icl_explain_figures import LEAST, floored, profile, without
from tests.labs.icl.explained import small


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
    assert "Trained with: noise U2, recipe none." in text
    assert ("nearest DIAG weights" in text) == (kind == "full")
    assert ("The effect of each omega" in text) == (kind == "diag")


def test_it_loads_nothing_from_outside(page: str) -> None:
    assert not re.search(r"<(script|link|img|iframe)\b|@import|\bsrc=", page)
    assert not re.search(r"url\(|href=|http", page)
    assert page.count('role="img"') == 17
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_frame_is_that_of_the_model_and_worse_baselines_leave_it(diag: dict[str, Any]) -> None:
    document = deepcopy(diag)
    for row in document["profile"]:
        row["scores"]["AdaRR"]["mean"] = 1e6
    metrics = profile(document)
    losses = [loss for _, loss in metrics.series["this model"] if loss is not None]
    assert metrics.y_range is not None
    assert metrics.y_range[1] < 1e3
    assert metrics.shade == (min(document["levels"]), max(document["levels"]))
    assert metrics.series["AdaRR"][0][1] == 1e6
    assert losses


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
    [(None, "overflow"), (0.0, "0"), (3e-30, "0"), (0.12345, "0.123"), (-0.00042, "-0.00042"), (4.4e6, "4.4 × 10⁶")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ({"trimmed": 0.1, "diverged": 0.0}, []),
        ({"trimmed": 1.9, "diverged": 0.0}, ["Nothing was learned"]),  # always answering 0 has d / 2 - 0.05
        ({"trimmed": None, "diverged": 0.0}, ["Nothing was learned"]),
        ({"trimmed": 0.1, "diverged": 0.05}, ["5 % of the sequences diverge"]),
        ({"trimmed": 0.1, "diverged": None}, ["- of the sequences diverge"]),
    ],
)
def test_a_model_that_learned_nothing_is_announced(
    diag: dict[str, Any], score: dict[str, Any], said: list[str]
) -> None:
    document = deepcopy(diag)
    document["score"] |= {"oracle": 0.05, **score}
    document["model"]["d"] = 4
    assert [line[: len(expected)] for line, expected in zip(warnings(document), said, strict=True)] == said
    assert ('role="note"' in html(document)) == bool(said)


def test_small_things() -> None:
    assert percent(0.0675) == "6.75 %"
    assert percent(None) == "-"
    assert floored([(1, 0.0), (2, 2.0), (3, None)]) == [(1, LEAST), (2, 2.0), (3, None)]
    assert without({"without": "xy and yy"}) == "ω_xy and ω_yy"
    assert without({"without": "nothing"}) == "nothing"
