"""The page: one file that asks for nothing and escapes its text."""

from __future__ import annotations

import pytest

from linnet.labs.report.page import figures, numbered, page, paragraph, section, sentence, table


def test_text_is_escaped() -> None:
    parts = [paragraph("a < b"), numbered(["<i>"]), table(["<h>"], [["&", "<td>"]]), figures("<svg></svg>")]
    text = page("<t>", [section("<s>", *parts)])
    for raw in ("<i>", "<h>", "<t>", "<s>", "a < b"):
        assert raw not in text
    assert text.count("&lt;") == 7
    assert "<svg></svg>" in text


def test_numbers_stay_with_their_signs() -> None:
    assert paragraph("12 % at sigma = 5") == "<p>12\u00a0% at sigma\u00a0=\u00a05</p>"
    assert paragraph("x", soft=True) == '<p class="soft">x</p>'


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
