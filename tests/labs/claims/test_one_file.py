"""A claim is one file: a module with a CLAIM in the folder of its paper, and nothing else to edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.labs.claims import chosen, claims, open
from linnet.labs.core.claim import BUDGETS, PAPERS, Setting

MODULE = """
from linnet.labs.core.claim import Claim, untested

CLAIM = Claim(
    name="one-more",
    number="",
    place={place},
    paper="open",
    statement="One file is enough.",
    source="The paper says so.",
    rule="none",
    answers={{"yes": "Yes", "no": "No"}},
    change="a second file",
    units=lambda setting: [],
    read=lambda rows: untested("nothing was run"),
)
"""


@pytest.mark.parametrize(("place", "before"), [(0, "kernel-task"), (99, None)])
def test_a_new_claim_is_a_new_file(
    place: int, before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = list(claims())
    (tmp_path / f"one_more_{place}.py").write_text(MODULE.format(place=place))
    monkeypatch.setattr(open, "__path__", [*open.__path__, str(tmp_path)])
    order = list(claims())
    at = order.index("one-more")
    assert order[at + 1 :][:1] == ([before] if before else [])
    assert [name for name in order if name != "one-more"] == old
    assert [claim.statement for claim in chosen(["one-more"])] == ["One file is enough."]


def test_papers_are_told_in_their_order() -> None:
    papers = [claim.paper for claim in claims().values()]
    assert list(dict.fromkeys(papers)) == list(PAPERS)
    assert papers == sorted(papers, key=list(PAPERS).index)


def test_every_claim_of_every_budget_has_distinct_rows() -> None:
    for claim in claims().values():
        for budget in BUDGETS[:2]:
            keys = claim.keys(Setting(budget))
            assert len(set(keys)) == len(keys), (claim.name, budget)
