"""The page: one file that asks for nothing, escapes its text and keeps its figures' ids apart."""

from __future__ import annotations

import re
from typing import Any

import pytest

from linnet.reports.page import INK, figure, numbered, page, paragraph, section, sentence, svg, table


def draw(canvas: Any) -> None:
    axes = canvas.subplots()
    axes.plot([1, 2], [3, 4], label="line")
    axes.set(title="a < b")
    axes.legend()


def test_text_is_escaped() -> None:
    parts = [paragraph("a < b"), numbered(["<i>"]), table(["<h>"], [["&", "<td>"]]), figure("<svg></svg>", "<c>")]
    text = page("<t>", [section("<s>", *parts)])
    for raw in ("<i>", "<h>", "<t>", "<s>", "<c>", "a < b"):
        assert raw not in text
    assert text.count("&lt;") == 8
    assert "<svg></svg>" in text


def test_numbers_stay_with_their_signs() -> None:
    assert paragraph("12 % at sigma = 5") == "<p>12\u00a0% at sigma\u00a0=\u00a05</p>"
    assert paragraph("x", soft=True) == '<p class="soft">x</p>'


def test_a_figure_takes_the_colour_of_the_text_and_is_text_itself() -> None:
    text = svg(draw, "one")
    assert text.startswith("<svg")
    assert "currentColor" in text
    assert INK not in text
    assert "a &lt; b" in text
    assert "<metadata>" not in text
    assert text == svg(draw, "one")


def test_ids_of_two_figures_differ_and_every_reference_has_its_id() -> None:
    text = svg(draw, "one") + svg(draw, "two")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    wanted = re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)
    assert wanted
    assert set(wanted) <= set(ids)


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("of two, one holds", "Of two, one holds."),
        ("Done.", "Done."),
        ("why?", "Why?"),
        ("float64, 17 tokens", "float64, 17 tokens."),
        ("linear (elu)", "Linear (elu)."),
        ("", ""),
    ],
)
def test_sentences_begin_with_a_capital_and_end(words: str, whole: str) -> None:
    assert sentence(words) == whole


def test_a_page_can_have_a_style_of_its_own() -> None:
    assert ".mine { color: red; }</style>" in page("t", [], style=".mine { color: red; }")


def test_light_dark_and_phones() -> None:
    text = page("t", [])
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert "overflow-x: auto" in text
