"""What a run adds to the committed evidence, on made-up claims: every word, and every reason for a difference."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.core.agreement import agreement, shown
from linnet.labs.core.licence import QUIET

SCOPE = "d = 64, 256 to 1,024 tokens, 5 seeds"


def number(low: float | None = 1.0, high: float | None = 2.0) -> dict[str, Any]:
    return {"what": "lead", "shown": "1.500", "spread": "[1, 2]", "ours": 1.5, "low": low, "high": high}


def claim(outcome: str, **fields: Any) -> dict[str, Any]:
    same = {"outcome": outcome, "errors": [], "missing": 0, "reason": "", "sentence": "why", "scope": SCOPE}
    more = {"regime": {"here": ""}, "data": [], "controls": [], "numbers": [number()]}
    return {**same, **more, **fields}


def committed(outcome: str, **fields: Any) -> dict[str, Any]:
    same = {"outcome": outcome, "answer": "Yes", "scope": SCOPE, "sizes": "", "data": [], "number": number()}
    return {**same, **fields}


@pytest.mark.parametrize(
    ("here", "before", "word"),
    [
        ("holds", "holds", "agrees"),
        ("seen here", "holds", "agrees"),
        ("holds", "seen here", "agrees"),
        ("not seen here", "does not hold", "agrees"),
        ("too close to call", "too close to call", "agrees"),
        ("does not hold", "holds", "differs"),
        ("not seen here", "seen here", "differs"),
        ("too close to call", "holds", "differs"),
        ("seen here", "not tested here", "differs"),
        ("not tested here", "holds", "adds nothing"),
        ("error", "holds", "adds nothing"),
    ],
)
def test_the_word(here: str, before: str, word: str) -> None:
    assert agreement(claim(here, errors=["unit: broken"]), committed(before))["word"] == word


def test_agreement_at_another_size_says_so() -> None:
    assert agreement(claim("seen here"), committed("holds"))["reason"] == "at this size"
    assert agreement(claim("seen here"), committed("seen here"))["reason"] == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ({"scope": "48 tokens, 3 seeds"}, {}, "size: 48 tokens here, d = 64, 256 to 1,024 tokens in the committed run"),
        ({"regime": {"here": "width 8"}}, {"sizes": "width 64"}, "size: width 8 here, width 64 in the committed run"),
        ({"scope": SCOPE.replace("5 seeds", "3 seeds")}, {}, "noise: the intervals overlap"),
        ({}, {"data": ["mnist"]}, "data: the shipped data here, mnist in the committed run"),
        (
            {"controls": [{"name": QUIET, "passed": False, "detail": "half of the rounds lie far away"}]},
            {"number": None},
            "noise: half of the rounds lie far away",
        ),
        ({"controls": [{"name": "other", "passed": False}]}, {"number": number(5.0, 6.0)}, "another machine"),
        ({"numbers": [number(None, None)]}, {}, "another machine"),
        ({"numbers": []}, {}, "another machine"),
        ({"numbers": [number() | {"what": "time"}]}, {}, "another machine"),
    ],
)
def test_the_reason_of_a_difference(ours: dict[str, Any], theirs: dict[str, Any], reason: str) -> None:
    verdict = agreement(claim("does not hold", **ours), committed("holds", **theirs))
    assert verdict == {"word": "differs", "reason": reason}


def test_what_was_not_run_says_why() -> None:
    late = claim("not tested here", missing=3, reason="no time left: about 2 minutes more: --minutes 12")
    assert agreement(late, committed("holds")) == {"word": "not run", "reason": late["reason"]}
    assert agreement(claim("not tested here", missing=3), committed("holds"))["reason"] == "why"
    easy = claim("not tested here", reason="too easy")
    assert agreement(easy, committed("holds")) == {"word": "adds nothing", "reason": "too easy"}


def test_a_claim_that_the_committed_run_could_not_decide_says_so() -> None:
    before = committed("not tested here", answer="Not tested: too easy", scope="16 tokens")
    reason = agreement(claim("holds"), before)["reason"]
    assert reason.startswith("the committed run did not decide it (Not tested: too easy); size: ")


def test_what_a_document_shows_of_the_evidence() -> None:
    assert shown(committed("holds")) == {
        "outcome": "holds", "answer": "Yes", "scope": SCOPE, "shown": "1.500", "spread": "[1, 2]"
    }  # fmt: skip
    assert shown(committed("holds", number=None))["shown"] == ""
