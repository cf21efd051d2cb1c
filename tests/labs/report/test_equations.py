"""Equations of the documentation: every block is typeset, and what cannot be typeset ends the build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("latex2mathml", reason="the extra docs is not installed")

from linnet.labs.report.equations import fence, mathml

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_equation_of_the_documentation_is_typeset(page: Path) -> None:
    for latex in BLOCK.findall(page.read_text(encoding="utf-8")):
        typeset = mathml(latex)
        assert typeset.startswith("<math ")
        assert "\\" not in typeset
        assert "&amp;" not in typeset


def test_the_pages_of_the_papers_have_equations() -> None:
    names = {str(page.relative_to(DOCS)) for page in PAGES}
    assert {"science/transformers-are-rnns.md", "science/in-context-learning.md", "guide/op.md"} <= names


def test_lines_are_aligned_and_lines_of_source_do_not_matter() -> None:
    typeset = mathml("\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}\n")
    assert typeset.count("<mtr>") == 2
    assert 'columnalign="right"' in typeset
    assert typeset == mathml("\\begin{align*} a &= b \\\\ c &= d \\end{align*}")


@pytest.mark.parametrize(("latex", "name"), [("\\frobnicate x", "\\frobnicate"), ("x + \\pih", "\\pih")])
def test_an_unknown_command_is_named(latex: str, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be typeset") as error:
        mathml(latex)
    assert str(error.value).startswith(f"{name} in the equation")


def test_a_fence_is_a_box_and_its_error_is_not_swallowed() -> None:
    superfences = pytest.importorskip("pymdownx.superfences", reason="the extra docs is not installed")
    assert fence("x", "math", "math", {}, None).startswith('<div class="math"><math ')
    with pytest.raises(superfences.SuperFencesException, match="frobnicate"):
        fence("\\frobnicate x", "math", "math", {}, None)
