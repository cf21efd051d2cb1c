"""Marked blocks of Markdown files: replaced from the document, refused where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.labs.report.blocks import has_blocks, with_blocks
from linnet.labs.report.scoreboard import evidence, scoreboard
from tests.labs.report.made_up import document

FOLDER = Path("docs/results")


def replaced(text: str, path: str = "README.md") -> str:
    return with_blocks(Path(path), text, document(), FOLDER)


def inline(*words: str) -> str:
    markers = ("number copy 0", "value copy 0", "number copy 1", "outcome speed")
    return ", ".join(f"<!-- {marker} -->{word}<!-- end -->" for marker, word in zip(markers, words, strict=True))


def test_every_block_is_replaced_and_the_rest_kept() -> None:
    before = ("9", "", "x", "holds")
    after = ("0.650 bits [0.610, 0.690]", "0.650 bits", "6.2 × 10⁻¹⁶", "does not hold")
    text = "\n<!-- scoreboard -->\nold\n<!-- end -->\n<!-- other -->kept<!-- end -->\n<!-- evidence -->\n<!-- end -->\n"
    new = replaced(inline(*before) + text)
    assert new.startswith(inline(*after) + "\n<!-- scoreboard -->\n")
    assert f"<!-- scoreboard -->\n{scoreboard(document())}\n<!-- end -->\n<!-- other -->kept<!-- end -->\n" in new
    assert new.endswith(f"<!-- evidence -->\n{evidence(document(), 'docs/results/report.md')}\n<!-- end -->\n")
    assert replaced(new) == new


def test_the_link_is_seen_from_the_file() -> None:
    new = replaced("<!-- evidence --><!-- end -->", "docs/science/index.md")
    assert "(../results/report.md)" in new


def test_code_is_left_alone() -> None:
    text = "`<!-- number x 9 -->` and\n```\n<!-- scoreboard -->\n<!-- end -->\n```\n"
    assert not has_blocks(text)
    more = text + "<!-- outcome copy -->x<!-- end -->"
    assert has_blocks(more)
    assert replaced(more) == text + "<!-- outcome copy -->holds<!-- end -->"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "README.md has no block such as <!-- scoreboard -->"),
        ("<!-- scoreboard -->\n", "<!-- scoreboard --> is not followed by <!-- end -->"),
        ("<!-- scoreboard -->\n<!-- outcome copy -->x<!-- end -->", "<!-- scoreboard --> is not followed by"),
        ("<!-- number cpoy 0 -->x<!-- end -->", "this run has no claim 'cpoy'"),
        ("<!-- number copy 2 -->x<!-- end -->", "copy has no number '2'; accepted: 0 to 1"),
        ("<!-- number copy -1 -->x<!-- end -->", "accepted: 0 to 1"),
        ("<!-- value speech 0 -->x<!-- end -->", "accepted: none, it has no numbers"),
        ("<!-- number copy -->x<!-- end -->", "1 word follows 'number'; accepted: a claim and an index"),
        ("<!-- outcome copy 0 -->x<!-- end -->", "2 words follow 'outcome'; accepted: a claim"),
    ],
)
def test_what_cannot_be_replaced_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"README\.md") as error:
        replaced(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
