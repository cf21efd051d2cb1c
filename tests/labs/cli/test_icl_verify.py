"""`linnet icl verify`: the checks in a table and in JSON, exit status 1 when one fails, sentences for bad input."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from linnet.labs.icl import verify, verify_forms, verify_wrong
from linnet.labs.icl.verify import CHECKS, Check
from tests.cli.command import help_without_torch, linnet, refused

FAST = ("--only", "lemma-4.3", "example")
Capsys = pytest.CaptureFixture[str]


def test_table_has_every_row(capsys: Capsys) -> None:
    done = linnet(capsys, "icl", "verify", *FAST)
    assert (done.status, done.err) == (0, "")
    result = verify.run(["lemma-4.3", "example"])
    for check in result:
        (line,) = [line for line in done.out.splitlines() if check.statement in line]
        assert line.rstrip().endswith(f"{check.value:.3g} {check.relation} {check.bound:g} pass")
    assert done.out.splitlines()[1].startswith("lemma-4.3")
    assert done.out.rstrip().endswith(f"{len(result)} of {len(result)} checks passed")


def test_json_is_the_checks(capsys: Capsys) -> None:
    done = linnet(capsys, "icl", "verify", *FAST, "--seed", "3", "--json")
    assert done.status == 0
    document = json.loads(done.out)
    rows = [check.as_dict() for check in verify.run(["lemma-4.3", "example"], seed=3)]
    assert document == {"format": 1, "seed": 3, "passed": True, "checks": rows}
    assert set(rows[0]) == {"name", "statement", "value", "bound", "relation", "passed"}


def test_a_wrong_formula_ends_with_1(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(generator: Any) -> list[Check]:
        return verify_forms.lemma_4_3(generator, step=verify_wrong.wrong_sign)

    monkeypatch.setitem(CHECKS, "lemma-4.3", wrong)
    done = linnet(capsys, "icl", "verify", *FAST)
    assert done.status == 1
    assert done.out.count("FAIL") == 2
    assert done.out.rstrip().endswith("5 of 7 checks passed")
    done = linnet(capsys, "icl", "verify", *FAST, "--json")
    assert done.status == 1
    document = json.loads(done.out)
    assert document["passed"] is False
    assert [row["passed"] for row in document["checks"]] == [False, False, True, True, True, True, True]


def test_no_number_is_a_failure_and_null(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "example", lambda generator: [Check("example", "broken", math.nan, 1.0)])
    done = linnet(capsys, "icl", "verify", "--only", "example", "--json")
    assert done.status == 1
    (row,) = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))["checks"]
    assert (row["value"], row["passed"]) == (None, False)


def test_requests_that_are_refused(capsys: Capsys) -> None:
    assert "unknown check 'lemma4.3'; did you mean 'lemma-4.3'?" in refused(
        capsys, "icl", "verify", "--only", "lemma4.3"
    )
    assert "the seed is -2; accepted: an integer from 0" in refused(capsys, "icl", "verify", "--seed", "-2")


def test_help_teaches_every_name_without_torch() -> None:
    text = help_without_torch("icl", "verify")
    names = [line.split()[0] for line in text.splitlines() if line.startswith("    ") and not line.startswith("     ")]
    assert [name for name in names if name in CHECKS] == list(CHECKS)
