"""A limit of time: whole claims are chosen, nothing starts that cannot end, and the same command continues.

The clock is a number that every row moves forward, so nothing here waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linnet import StateError
from linnet.errors import ArgumentError
from linnet.labs.claims.document import document
from linnet.labs.core.claim import Claim, Setting, Unit
from linnet.labs.core.folder import begin, read_postponed
from linnet.labs.core.pace import Pace, Probe, Workload, probe, relative
from linnet.labs.core.plan import Limit, Work, check_minutes, make_plan, spoken, wall_clock
from linnet.labs.core.reproduce import reproduce
from linnet.labs.core.results import Row, Store, read_rows
from linnet.labs.core.runner import Gate, Hooks, run_all
from tests.labs.core.claims_stand_in import made
from tests.labs.core.units import Count, count

QUICK = Setting("quick")
PAPERS = ("rnn", "icl", "open")


def work(name: str, paper: str, top: int, seconds: float, alone: bool = False, rows_of: str = "") -> Work:
    claim = made(name, paper, top, alone, rows_of, seconds)
    return Work(name, paper, tuple(claim.units(QUICK)))


def limit(seconds: float, workers: int = 1, pace: Pace | None = None) -> Limit:
    return Limit(seconds, workers, pace, clock=lambda: 0.0)


def names(claims: list[Work]) -> list[str]:
    return [claim.name for claim in claims]


def test_cheap_claims_come_first_and_the_papers_take_turns() -> None:
    every = [work("long", "rnn", 1, 50.0), work("a", "rnn", 1, 2.0), work("b", "rnn", 1, 3.0), work("c", "icl", 1, 9.0)]
    plan = make_plan(every, limit(1000.0))
    assert names(plan.fits) == ["a", "c", "b", "long"]
    assert plan.later == []


def test_whole_claims_fit_and_a_long_one_does_not_keep_short_ones_out() -> None:
    every = [work("a", "rnn", 4, 10.0), work("huge", "icl", 4, 100.0), work("b", "open", 4, 12.0)]
    plan = make_plan(every, limit(110.0))
    assert names(plan.fits) == ["a", "b"]
    assert names(plan.later) == ["huge"]
    assert names(make_plan(every, limit(110.0, pace=Pace(shared=2.0))).fits) == ["a"]


def test_work_that_two_claims_share_counts_once() -> None:
    every = [work("a", "rnn", 5, 10.0), work("b", "icl", 5, 10.0, rows_of="a"), work("c", "open", 5, 10.0)]
    assert names(make_plan(every, limit(65.0)).fits) == ["a", "b"]


def test_timings_take_their_time_alone_and_the_rest_shares_the_workers() -> None:
    units = [*work("a", "rnn", 4, 10.0).units, *work("t", "rnn", 2, 3.0, alone=True).units]
    assert wall_clock(units, 1, Pace()) == 46.0
    assert wall_clock(units, 2, Pace()) == 26.0
    assert wall_clock(units, 8, Pace()) == 16.0
    assert wall_clock(units, 2, Pace(shared=2.0, alone=3.0)) == 58.0
    assert wall_clock([], 2, Pace()) == 0.0


def test_finished_work_corrects_the_pace_and_its_own_experiment_most() -> None:
    pace = Pace(shared=1.0)
    (a, *_), (b, *_), (t, *_) = (work(name, "rnn", 1, 10.0, name == "t").units for name in "abt")
    for _ in range(20):
        pace.note(a, 40.0)
    assert 3.9 < pace.of(a) <= 4.0
    assert 1.0 < pace.of(b) < pace.of(a)
    assert pace.of(t) == 1.0
    assert pace.seconds(b) == 10.0 * pace.overall()


def test_a_unit_starts_only_if_the_rest_of_its_claim_fits() -> None:
    gate = limit(100.0)
    fits, not_now = work("a", "rnn", 3, 25.0), work("b", "icl", 4, 25.0)
    gate.expect([fits, not_now])
    assert gate.admit(fits.units[0])
    assert not gate.admit(not_now.units[0])
    assert not any(gate.admit(unit) for unit in not_now.units)  # given up: a part of it would decide nothing
    assert gate.admit(fits.units[1])
    gate.total = 20.0
    assert not gate.admit(fits.units[2])


class Slow:
    """A clock that every row moves by `pace` times its expected seconds."""

    def __init__(self, pace: float, each: float) -> None:
        self.now, self.step = 0.0, pace * each
        self.started: list[str] = []
        self.remarks: list[str] = []

    def __call__(self) -> float:
        return self.now

    def row(self, row: Row) -> None:
        self.started.append(row["config"]["experiment"])
        self.now += self.step

    def hooks(self) -> Hooks:
        return Hooks(row=self.row, remark=self.remarks.append)


def run(out: Path, claims: dict[str, Claim], clock: Slow, seconds: float, measured: float = 1.0) -> dict[str, Any]:
    begun = begin(out, "quick", list(claims.values()), shipped=True)
    time = Limit(seconds, 1, clock=clock)
    how: dict[str, Any] = {"limit": time, "measure": lambda workers: Pace(measured, measured)}
    assert reproduce(list(claims.values()), begun, out, watch=clock.hooks(), **how) == []
    return document(out, every=claims)


def outcomes(result: dict[str, Any]) -> dict[str, str]:
    return {claim["name"]: claim["outcome"] for claim in result["claims"]}


@pytest.fixture
def nine() -> dict[str, Claim]:
    """Three claims of three rows in each of three papers; a row takes ten seconds."""
    return {f"{paper}-{i}": made(f"{paper}-{i}", paper, seconds=10.0) for paper in PAPERS for i in range(3)}


def test_everything_runs_where_the_time_is_enough(tmp_path: Path, nine: dict[str, Claim]) -> None:
    result = run(tmp_path / "out", nine, Slow(1.0, 10.0), 600.0)
    assert set(outcomes(result).values()) == {"holds"}
    assert read_postponed(tmp_path / "out") == {}
    assert all(claim["time"] is None for claim in result["claims"])


def test_a_slow_machine_ends_in_time_with_whole_claims_of_every_paper(tmp_path: Path, nine: dict[str, Claim]) -> None:
    clock = Slow(3.0, 10.0)  # 810 seconds for all
    result = run(tmp_path / "out", nine, clock, 480.0, measured=3.0)
    done = [name for name, outcome in outcomes(result).items() if outcome == "holds"]
    assert clock.now <= 480.0
    assert len(done) == 5
    assert {name.split("-")[0] for name in done} == set(PAPERS)
    assert len(clock.started) == 15  # no row of a claim that could not be finished
    assert "work takes 3.0 times its usual time here: 5 of 9 claims" in clock.remarks[0]
    left = next(claim for claim in result["claims"] if claim["name"] not in done)
    assert left["outcome"] == "not tested here"
    assert left["answer"] == "Not tested: no time left"
    assert left["reason"].startswith("no time left: about 2 minutes more: --minutes ")
    assert left["errors"] == []
    assert result["counts"]["error"] == 0


def test_a_machine_that_is_slower_than_measured_still_ends_in_time(tmp_path: Path, nine: dict[str, Claim]) -> None:
    clock = Slow(4.0, 10.0)  # the measurement says 1, and the units that finish say 4
    result = run(tmp_path / "out", nine, clock, 460.0)
    assert clock.now <= 460.0
    assert "holds" in outcomes(result).values()
    assert "not tested here" in outcomes(result).values()


def test_time_that_a_fast_machine_saves_is_used(tmp_path: Path, nine: dict[str, Claim]) -> None:
    clock = Slow(1.0, 10.0)  # measured as 4 times slower, but it is not
    result = run(tmp_path / "out", nine, clock, 480.0, measured=4.0)
    assert set(outcomes(result).values()) == {"holds"}
    assert "of 9 claims" in clock.remarks[0]


def test_the_same_command_continues_after_the_end_of_its_time(tmp_path: Path, nine: dict[str, Claim]) -> None:
    out, counts = tmp_path / "out", []
    for _ in range(4):
        result = run(out, nine, Slow(3.0, 10.0), 300.0, measured=3.0)
        counts.append(list(outcomes(result).values()).count("holds"))
    assert counts == [3, 6, 9, 9]
    assert len(read_rows(out / "rows.jsonl")) == 27
    assert read_postponed(out) == {}


def test_the_stated_minutes_are_enough_for_what_had_no_time(tmp_path: Path, nine: dict[str, Claim]) -> None:
    run(tmp_path / "first", nine, Slow(3.0, 10.0), 480.0, measured=3.0)
    needed = max(time["minutes"] for time in read_postponed(tmp_path / "first").values())
    result = run(tmp_path / "second", nine, Slow(3.0, 10.0), 60 * needed, measured=3.0)
    assert set(outcomes(result).values()) == {"holds"}


def test_a_cheap_claim_comes_before_the_measurement(tmp_path: Path, nine: dict[str, Claim]) -> None:
    cheap = made("cheap", "open", seconds=0.1)
    timed = made("timed", "rnn", alone=True, seconds=0.05)
    claims, clock = {**nine, "timed": timed, "cheap": cheap}, Slow(1.0, 1.0)
    seen: list[list[str]] = []
    begun = begin(tmp_path / "out", "quick", list(claims.values()), shipped=True)

    def measured(workers: int | str) -> Pace:
        seen.append(list(clock.started))
        return Pace()

    how: dict[str, Any] = {"limit": Limit(480.0, clock=clock), "measure": measured, "watch": clock.hooks()}
    reproduce(list(claims.values()), begun, tmp_path / "out", **how)
    assert seen == [["cheap"] * 3]
    assert clock.started[3:6] == ["timed"] * 3


def test_no_measurement_where_the_work_surely_fits(tmp_path: Path) -> None:
    claims = {"a": made("a", "rnn")}
    begun = begin(tmp_path / "out", "quick", list(claims.values()), shipped=True)

    def measured(workers: int | str) -> Pace:
        raise AssertionError("measured")

    reproduce(list(claims.values()), begun, tmp_path / "out", limit=Limit(480.0), measure=measured)
    assert outcomes(document(tmp_path / "out", every=claims)) == {"a": "holds"}


def test_a_failure_is_an_error_and_is_not_tried_again_and_again(
    tmp_path: Path, nine: dict[str, Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", "2")
    out, claims = tmp_path / "out", {name: nine[name] for name in ("rnn-0", "icl-0")}
    begun = begin(out, "quick", list(claims.values()), shipped=True)
    failures = reproduce(list(claims.values()), begun, out, limit=Limit(4000.0))
    assert len(failures) == 2
    assert set(outcomes(document(out, every=claims)).values()) == {"error"}
    assert read_postponed(out) == {}


def test_a_record_of_the_claims_without_time_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postponed.json").write_text('{"a": {"seconds": -1, "minutes": 9}}')
    with pytest.raises(StateError, match=r"postponed\.json.*seconds is -1; .*delete it: the same command continues"):
        read_postponed(tmp_path)


class Ends(Gate):
    """Ends what runs as soon as the first row is there."""

    over = False

    def remaining(self) -> float:
        return 0.0 if self.over else 300.0


def test_work_that_runs_into_overtime_is_ended_and_its_rows_are_kept(tmp_path: Path) -> None:
    gate = Ends()

    def ends(row: Row) -> None:
        gate.over = True

    units = [Count("a", top=2, sleep_at=2), Count("b", top=2, sleep_at=2)]
    with Store(tmp_path / "rows.jsonl") as store:
        assert run_all(units, count, store, workers=2, on_row=ends, gate=gate) == []
        assert 1 <= len(store.rows()) <= 2


@pytest.mark.parametrize("minutes", ["0", "-3", "soon", "nan", "inf", ""])
def test_minutes_that_are_none_are_refused_in_one_sentence(minutes: str) -> None:
    with pytest.raises(ArgumentError, match=r"minutes is .*; accepted: a number above 0, such as 8"):
        check_minutes(minutes, "quick")


def test_only_the_quick_budget_has_a_limit_unless_one_is_given() -> None:
    assert [check_minutes(None, budget) for budget in ("quick", "smoke", "hour", "paper")] == [8.0, None, None, None]
    assert check_minutes("2.5", "hour") == 2.5


def test_a_time_in_words() -> None:
    assert [spoken(seconds) for seconds in (1.0, 31.0, 89.0, 119.0, 601.0)] == [
        "10 seconds", "40 seconds", "90 seconds", "2 minutes", "10 minutes"
    ]  # fmt: skip


def test_the_measurement_counts_steps_and_a_strange_one_is_bounded() -> None:
    Workload().step()
    (row,) = probe(Probe(0.0))
    assert row["rate"] > 0
    assert relative(100.0, [50.0, 50.0]) == 2.0
    assert relative(100.0, [1e-9]) == relative(100.0, [0.0]) == 20.0
    assert relative(100.0, []) == 1.0


def test_units_are_told_apart_by_their_rows() -> None:
    unit: Unit = work("a", "rnn", 1, 1.0).units[0]
    gate = limit(10.0)
    assert not gate.admit(unit)  # expected by no claim
