"""A day run on claims that take milliseconds: stages, units that wait, a kill, rows of another folder, costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linnet import StateError
from linnet.labs.claims import chosen
from linnet.labs.claims.document import document, one_run
from linnet.labs.core import queue
from linnet.labs.core.claim import DAY, Setting
from linnet.labs.core.folder import begin
from linnet.labs.core.join import join
from linnet.labs.core.manifest import write_manifest
from linnet.labs.core.outlook import outlook, totals
from linnet.labs.core.plan import Limit, Work
from linnet.labs.core.queue import Queue
from linnet.labs.core.reproduce import reproduce
from linnet.labs.core.results import Row, key, read_rows
from linnet.labs.report.reproduce import html, markdown
from tests.labs.core.claims_stand_in import CLAIMS, staged

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 240.0
EVERY = {"staged": staged("staged"), **CLAIMS}


def run(out: Path, workers: int = 1, every: Any = None) -> dict[str, Any]:
    every = EVERY if every is None else every
    claims = chosen(["all"], every, DAY)
    reproduce(claims, begin(out, DAY, claims, shipped=True), out, workers=workers)
    return document(out, every=every)


def numbers(rows: Sequence[Row]) -> list[int]:
    return [row["config"]["i"] for row in rows]


@pytest.mark.parametrize("workers", [1, 2])
def test_units_that_wait_start_when_their_rows_exist(tmp_path: Path, workers: int) -> None:
    """The first stage searches with 1 and 2, prefers the larger square and reports at 20, 21; the second adds 30."""
    result = run(tmp_path / "out", workers)
    done = numbers(read_rows(tmp_path / "out" / "rows.jsonl"))
    assert sorted(done) == [1, 2, 20, 21, 30]
    assert max(map(done.index, (1, 2))) < min(map(done.index, (20, 21)))
    assert workers == 2 or done[-1] == 30  # with nothing better to do, a worker goes ahead
    (claim,) = result["claims"]
    assert (claim["outcome"], claim["rows"], claim["missing"], claim["later"]) == ("holds", 5, 0, 0)
    assert claim["command"] == "linnet reproduce staged --budget day"


def test_only_claims_with_a_day_run_take_part() -> None:
    assert [one.name for one in chosen(["all"], EVERY, DAY)] == ["staged"]
    assert EVERY["plain"].work(Setting(DAY)) == []
    with pytest.raises(ValueError, match=r"'plain'.*staged.*--budget hour"):
        chosen(["plain"], EVERY, DAY)


def test_a_complete_stage_is_judged_and_the_rest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_AT", "30")
    (claim,) = run(tmp_path / "out")["claims"]
    assert (claim["rows"], claim["missing"], claim["later"], claim["scope"]) == (4, 0, 1, "4 numbers")
    monkeypatch.setenv("FAIL_AT", "21")
    result = run(tmp_path / "other")
    assert (result["claims"][0]["outcome"], result["claims"][0]["missing"]) == ("error", 1)
    page, text = html(result), markdown(result)
    for words in ("What is missing, and what it would cost", "core-hours"):
        assert words in page
        assert words in text
    assert [(one["stage"], one["rows"], one["wanted"]) for one in result["work"]] == [(1, 3, 4), (2, 1, 1)]


def test_the_cheapest_open_stage_comes_first() -> None:
    small, large = staged("small", "open", seconds=1.0), staged("large", seconds=5.0)
    setting = Setting(DAY)
    work = [Work(claim.name, "", tuple(claim.work(setting))) for claim in (large, small)]
    order = [(unit.work["experiment"], unit.work["i"]) for unit in Queue(lambda: work)]
    assert order == [("small", 1), ("small", 2), ("large", 1), ("large", 2), ("small", 30), ("large", 30)]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    code = (
        f"from pathlib import Path; from tests.labs.core.test_day import run; run(Path({str(tmp_path / 'out')!r}), 2)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "WAIT_AT": "21"})
    rows, began = tmp_path / "out" / "rows.jsonl", time.monotonic()
    while not rows.exists() or rows.read_text().count("\n") < 3:
        assert time.monotonic() - began < PATIENCE
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = rows.read_text()
    assert run(tmp_path / "out")["claims"][0]["outcome"] == "holds"
    assert rows.read_text().startswith(before)
    assert sorted(numbers(read_rows(rows))) == [1, 2, 20, 21, 30]


def test_rows_of_another_machine_are_joined_where_their_configuration_is_needed(tmp_path: Path) -> None:
    run(tmp_path / "other")
    path = tmp_path / "other" / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row |= {"machine": {"name": "elsewhere"}, "versions": {"linnet": "0.0.9"}, "info": {"cpu": 7.0}}
    strange = {**rows[0], "config": {**rows[0]["config"], "i": 77}}
    path.write_text("".join(json.dumps(row) + "\n" for row in [strange, *reversed(rows)]))
    out = tmp_path / "out"
    begun = begin(out, DAY, [EVERY["staged"]], shipped=True)
    joined = join(out, tmp_path / "other", begun, [EVERY["staged"]])
    assert (joined.taken, joined.known, len(joined.foreign)) == (5, 0, 1)
    assert "i 77" in joined.foreign[0]
    assert join(out, tmp_path / "other", begun, [EVERY["staged"]])[:2] == (0, 5)
    with pytest.raises(StateError, match=r"has no rows\.jsonl"):
        join(out, tmp_path, begun, [EVERY["staged"]])
    (claim,) = document(out, every=EVERY)["claims"]
    assert (claim["outcome"], claim["seconds"]) == ("holds", 35.0)


def test_rows_of_another_machine_are_shown_as_such(tmp_path: Path) -> None:
    run(tmp_path / "out")
    path = tmp_path / "out" / "rows.jsonl"
    lines = path.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "machine": {"name": "elsewhere"}})
    path.write_text("\n".join(lines) + "\n")
    result = document(tmp_path / "out", every=EVERY)
    assert result["claims"][0]["foreign"] == 1
    assert "1 from another machine" in html(result)


def test_costs_are_those_of_the_rows_that_exist(tmp_path: Path) -> None:
    run(tmp_path / "out")
    rows = read_rows(tmp_path / "out" / "rows.jsonl")
    known = {key(row["config"]): {**row, "info": {"cpu": 2000.0}} for row in rows if row["config"]["i"] in (1, 2)}
    setting = Setting(DAY, row=lambda config: known.get(key(config)))
    claim = staged("staged", seconds=1000.0)
    lines = outlook([claim], setting, known)
    assert [(one.stage, one.rows, one.wanted) for one in lines] == [(1, 2, 4), (2, 0, 1)]
    assert lines[0].spent == pytest.approx(4000 / 3600, abs=1e-3)
    assert lines[1].left == pytest.approx(2000 / 3600, rel=0.1)  # twice as slow as expected, with a little inertia
    everything = totals(lines)
    assert (everything.rows, everything.wanted) == (2, 5)
    at_first = [one.left for one in outlook([claim], Setting(DAY), {})]
    assert at_first == pytest.approx([4000 / 3600, 1000 / 3600], abs=1e-3)


def test_a_day_run_inside_a_folder_answers_for_the_claims_that_it_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {"staged": staged("staged"), "other": staged("other", "icl"), "plain": CLAIMS["plain"]}
    monkeypatch.setenv("FAIL_AT", "2")
    claims, out = list(every.values()), tmp_path / "out"
    run(out / DAY, every={"other": every["other"]})
    monkeypatch.delenv("FAIL_AT")
    run(out / DAY, every={"staged": every["staged"]})
    reproduce(claims, begin_beside(out, claims), out)
    result, alone = document(out, every=every), one_run(out, every)
    assert [(one["name"], one["command"].split()[-1]) for one in result["claims"]] == [
        ("staged", "day"), ("other", "quick"), ("plain", "quick"),
    ]  # fmt: skip
    assert result["sha256"] != alone["sha256"]
    assert result["work"]
    assert alone["day"] is None
    assert result["day"]["rows"] == 5 + 2


def test_a_sealed_day_run_grows_and_an_edited_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_AT", "21")
    out = tmp_path / "out"
    run(out)
    write_manifest(out)
    monkeypatch.delenv("FAIL_AT")
    assert run(out)["claims"][0]["outcome"] == "holds"
    path = out / "rows.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace('"square": 1', '"square": 2'), *lines[1:]]) + "\n")
    with pytest.raises(StateError, match="line 1"):
        document(out, every=EVERY)


def test_a_limit_of_time_starts_nothing_after_its_end(tmp_path: Path) -> None:
    claims, now = [EVERY["staged"]], iter(range(1000))
    limit = Limit(2.5, clock=lambda: float(next(now)))
    reproduce(claims, begin(tmp_path / "out", DAY, claims, shipped=True), tmp_path / "out", limit=limit)
    assert 0 < len(read_rows(tmp_path / "out" / "rows.jsonl")) < 5
    assert run(tmp_path / "out")["claims"][0]["outcome"] == "holds"


def begin_beside(out: Path, claims: Sequence[Any]) -> Any:
    """Start a quick run in a folder that holds a day run already."""
    moved = out.with_name("moved")
    out.rename(moved)
    begun = begin(out, "quick", list(claims), shipped=True)
    (moved / DAY).rename(out / DAY)
    return begun


def test_priority_is_lowered_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(queue.os, "nice", asked.append, raising=False)
    queue.lower_priority()
    assert asked == [19]
    monkeypatch.delattr(queue.os, "nice")
    queue.lower_priority()


@pytest.mark.skipif(not os.access(queue.AUTOGROUP, os.W_OK), reason="this system has no groups of sessions")
def test_a_session_of_its_own_yields_as_a_whole() -> None:
    code = "from linnet.labs.core import queue; queue.lower_priority(); print(queue.AUTOGROUP.read_text())"
    told = subprocess.run(
        [sys.executable, "-c", code], start_new_session=True, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip().endswith("nice 19")
