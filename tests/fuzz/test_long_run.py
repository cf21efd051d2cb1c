"""The frame of the fuzzers: it counts, shows what is found, says how to continue, and its status is what CI reads."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.fuzz import long_run
from tests.fuzz.long_run import Found, Job


def quiet(job: Job) -> tuple[Counter[str], list[Found]]:
    return Counter({"held": len(job.cases)}), []


def failing(job: Job) -> tuple[Counter[str], list[Found]]:
    return Counter({"held": len(job.cases)}), [Found("odd", f"case {i}") for i in job.cases if i % 2]


def dying(job: Job) -> tuple[Counter[str], list[Found]]:
    if job.cases.start >= 200:
        os._exit(11)
    return quiet(job)


def run(share: long_run.Share, *words: str) -> int:
    return long_run.run(share, long_run.parser("A test.", cases=250).parse_args(words))


def test_a_run_without_findings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "EVERY", 0.0)
    assert run(quiet, "--seed", "3", "--first", "100") == 0
    begin, first, second, held, end = capsys.readouterr().out.splitlines()
    assert begin == "250 cases of seed 3 from 100"
    assert first.startswith("100 of 250 cases, 0 findings, about 0 minutes left; ")
    assert second.endswith("to continue from here: --seed 3 --first 300")
    assert held.split() == ["held", "250"]
    assert end.endswith("0 findings of 0 sorts; next is --first 350")


def test_findings_are_shown_a_few_times_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing) == 1
    out = capsys.readouterr().out
    assert out.count("\ncase ") == long_run.SHOWN
    assert "125 findings of 1 sorts" in out
    assert run(failing, "--case", "7") == 1
    assert run(failing, "--case", "8") == 0


def test_a_stopped_run_says_where_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(job: Job) -> tuple[Counter[str], list[Found]]:
        if job.cases.start:
            raise KeyboardInterrupt
        return quiet(job)

    assert run(stopped) == 130
    assert "stopped: 100 cases of seed 0" in capsys.readouterr().out


@pytest.mark.slow  # starts processes that import torch
def test_several_processes_and_one_that_dies(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(quiet, "--workers", "2") == 0
    assert run(dying, "--workers", "2", "--cases", "300") == 1
    assert "a process died in cases" in capsys.readouterr().out
