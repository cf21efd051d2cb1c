"""Every outcome of the committed rows has its licence, and every claim states its result in words people can read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.claims.document import document
from linnet.labs.core.claim import WORDS
from linnet.labs.core.licence import FEW, SEEDS
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, OUTCOMES, SEEN, UNTESTED

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
NONSENSE = re.compile(
    r"recovers -|at (most|least) -[\d.]+ \w+ (behind|ahead)|\b1 (layers|seeds|rows|tokens|steps)\b|\bnan\b|\binf\b"
)


@pytest.fixture(scope="module")
def committed() -> list[dict[str, Any]]:
    return list(document(RESULTS)["claims"])


def breaches(claim: dict[str, Any]) -> list[str]:
    """Return what forbids the outcome of a claim."""
    outcome, outside, repeats = claim["outcome"], claim["regime"]["outside"], claim["repeats"]
    failed = [control["name"] for control in claim["controls"] if not control["passed"]]
    always = [control["name"] for control in claim["controls"] if not control["passed"] and control["always"]]
    if outcome in (HOLDS, FAILS, CLOSE):
        few = [f"{repeats} {claim['of']}"] if repeats is not None and repeats < SEEDS else []
        return [*outside, *failed, *few]
    if outcome in (SEEN, NOT_SEEN):
        few = [f"{repeats} {claim['of']}"] if repeats is not None and repeats < FEW else []
        return [*always, *few, *([] if outside else ["inside its regime"])]
    return [] if outcome == UNTESTED else [f"the outcome {outcome}"]


def test_no_outcome_breaches_its_licence(committed: list[dict[str, Any]]) -> None:
    assert len(committed) > 30
    assert {claim["name"]: breaches(claim) for claim in committed if breaches(claim)} == {}


@pytest.mark.parametrize(
    "change",
    [
        {"controls": [{"name": "learned", "passed": False, "always": True}]},
        {"repeats": 4},
        {"regime": {"outside": ["48 tokens"]}},
    ],
    ids=["control", "seeds", "regime"],
)
def test_a_breach_is_noticed(committed: list[dict[str, Any]], change: dict[str, Any]) -> None:
    fine = next(claim for claim in committed if claim["outcome"] in (HOLDS, FAILS))
    assert breaches(fine | change)


def test_a_claim_is_a_statement_with_an_answer_a_number_and_a_scope(committed: list[dict[str, Any]]) -> None:
    for claim in committed:
        name = claim["name"]
        assert claim["outcome"] in OUTCOMES, name
        assert claim["statement"].endswith("."), name
        assert len(claim["answer"].split()) <= WORDS, (name, claim["answer"])
        assert claim["change"], name
        if claim["outcome"] == UNTESTED:
            assert claim["reason"] or claim["sentence"], name
            assert not claim["meaning"], f"{name}: advice that leans on nothing"
        else:
            assert claim["numbers"], name
            assert claim["scope"], name


def test_no_line_of_nonsense(committed: list[dict[str, Any]]) -> None:
    for claim in committed:
        words = [claim[key] for key in ("statement", "answer", "reason", "sentence", "meaning", "scope")]
        words += [text for one in claim["numbers"] for text in (one["what"], one["shown"], one["spread"])]
        words += [control["detail"] for control in claim["controls"]]
        for text in words:
            assert not NONSENSE.search(text), (claim["name"], text)
