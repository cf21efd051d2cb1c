"""`linnet reproduce` on claims that take milliseconds: rows once, resumed, in error, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linnet import StateError
from linnet.labs.claims.document import about, document
from linnet.labs.core import folder
from linnet.labs.core.claim import Number, Unit, figures
from linnet.labs.core.folder import Run, begin, read_run
from linnet.labs.core.reproduce import reproduce
from linnet.labs.core.results import Store, read_rows
from linnet.labs.core.runner import Hooks
from tests.labs.core.claims_stand_in import CLAIMS, made

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 300.0


def run(out: Path, workers: int = 1, claims: Any = None, **how: Any) -> dict[str, Any]:
    every = CLAIMS if claims is None else claims
    begun = begin(out, "quick", list(every.values()), shipped=True)
    reproduce(list(every.values()), begun, out, workers=workers, **how)
    return document(out, every=every)


def scoreboard(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(c["name"], c["outcome"], c["sentence"], [n["shown"] for n in c["numbers"]]) for c in result["claims"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_claim_has_its_rows_and_shared_ones_are_made_once(tmp_path: Path, workers: int) -> None:
    metrics = run(tmp_path / "out", workers)
    assert [claim["outcome"] for claim in metrics["claims"]] == ["holds"] * 3
    assert {outcome: count for outcome, count in metrics["counts"].items() if count} == {"holds": 3}
    assert len(read_rows(tmp_path / "out" / "rows.jsonl")) == 6
    assert metrics["rows"] == 6
    first = metrics["claims"][0]
    assert first["command"] == "linnet reproduce plain --budget quick"
    assert first["rows"] == 3
    assert first["numbers"][0]["paper"] == "2.5"
    assert first["numbers"][0]["ours"] == pytest.approx(5 / 3)
    assert [chart["type"] for chart in first["charts"]] == ["chart", "heat"]
    json.dumps(metrics, allow_nan=False)


def test_timings_run_first_and_alone(tmp_path: Path) -> None:
    order: list[str] = []
    run(tmp_path / "out", watch=Hooks(row=lambda row: order.append(row["config"]["experiment"])))
    assert order == ["timed"] * 3 + ["plain"] * 3


def test_a_second_start_makes_nothing_and_says_the_same(tmp_path: Path) -> None:
    first = run(tmp_path / "out")
    planned: list[Unit] = []
    again = run(tmp_path / "out", watch=Hooks(start=lambda units, rows: planned.extend(units)))
    assert planned == []
    assert scoreboard(first) == scoreboard(again)


def test_a_failure_is_an_error_of_its_claims_only_and_gone_when_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = {**CLAIMS, "longer": made("longer", "open", top=5)}
    monkeypatch.setenv("FAIL_AT", "4")
    metrics = run(tmp_path / "out", claims=claims)
    assert [claim["outcome"] for claim in metrics["claims"]] == ["holds"] * 3 + ["error"]
    assert "no square of 4" in metrics["claims"][-1]["errors"][0]
    assert metrics["counts"]["error"] == 1
    assert "4 of 5 pieces of work are done" in metrics["claims"][-1]["sentence"]
    monkeypatch.delenv("FAIL_AT")
    assert run(tmp_path / "out", claims=claims)["counts"]["error"] == 0


def test_a_claim_that_cannot_read_its_rows_is_an_error_and_the_others_are_told(tmp_path: Path) -> None:
    def broken(rows: Any) -> Any:
        raise KeyError("loss")

    metrics = run(tmp_path / "out", claims={**CLAIMS, "plain": replace(CLAIMS["plain"], read=broken)})
    assert [claim["outcome"] for claim in metrics["claims"]] == ["error", "holds", "holds"]
    assert "KeyError" in metrics["claims"][0]["errors"][0]


def test_rows_that_are_missing_make_no_verdict(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = run(out)
    lines = (out / "rows.jsonl").read_text().splitlines(keepends=True)
    (out / "rows.jsonl").write_text("".join(lines[:-1]))
    result = document(out, every=CLAIMS)
    assert [claim["outcome"] for claim in result["claims"]] == ["not tested here", "holds", "not tested here"]
    assert scoreboard(run(out)) == scoreboard(whole)


SCRIPT = """
import sys
from pathlib import Path
from tests.labs.core.test_reproduce import run
run(Path(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_in_the_middle_then_the_same_scoreboard(tmp_path: Path, workers: int) -> None:
    out, whole = tmp_path / "out", run(tmp_path / "whole")
    command = [sys.executable, "-c", SCRIPT, str(out), str(workers)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "WAIT_AT": "2"})
    until = time.monotonic() + PATIENCE
    while not ((out / "rows.jsonl").exists() and (out / "rows.jsonl").read_text().count("\n") >= 2):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while True:  # the lock is gone with the process
        try:
            metrics = run(out)
            break
        except StateError:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert scoreboard(metrics) == scoreboard(whole)


def test_a_folder_of_another_budget_version_or_purpose_is_refused_and_untouched(tmp_path: Path) -> None:
    out, claims = tmp_path / "out", list(CLAIMS.values())
    run(out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(StateError, match=r"holds a run of budget quick, and hour is requested; .*--out"):
        begin(out, "hour", claims)
    changed = json.loads((out / "run.json").read_text()) | {"linnet": "9.9.9"}
    (out / "run.json").write_text(json.dumps(changed))
    with pytest.raises(StateError, match=r"written by linnet 9\.9\.9 and this is .*; name another folder"):
        begin(out, "quick", claims)
    (out / "run.json").write_text("{")
    with pytest.raises(StateError, match=r"run\.json is not JSON"):
        read_run(out)
    (out / "run.json").unlink()
    with pytest.raises(StateError, match=r"but no run\.json"):
        begin(out, "quick", claims)
    assert {path: path.read_bytes() for path in out.iterdir()} == {
        k: v for k, v in before.items() if k.name != "run.json"
    }
    with pytest.raises(StateError, match="is a file"):
        begin(out / "rows.jsonl", "quick", claims)
    with pytest.raises(StateError, match="accepted: the --out folder"):
        read_run(tmp_path / "nowhere")


def test_data_of_the_beginning_are_kept_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"mnist"}
    monkeypatch.setattr(folder, "data_folder", lambda name: tmp_path if name in here else None)
    out, claims = tmp_path / "out", list(CLAIMS.values())
    assert begin(out, "quick", claims).data == ("mnist",)
    here.add("an4")
    assert begin(out, "quick", claims).data == ("mnist",)
    with pytest.raises(StateError, match="started with mnist; leave --shipped out"):
        begin(out, "quick", claims, shipped=True)
    here.clear()
    with pytest.raises(StateError, match="started with the data set mnist, which is missing now; set LINNET_DATA"):
        begin(out, "quick", claims)


def test_a_data_folder_that_is_not_there_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "gone"))
    with pytest.raises(StateError, match=r"LINNET_DATA is .*gone, and there is no such folder; .*--shipped"):
        begin(tmp_path / "out", "quick", list(CLAIMS.values()))
    assert not (tmp_path / "out").exists()
    assert begin(tmp_path / "out", "quick", list(CLAIMS.values()), shipped=True).data == ()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"versions": {"linnet": "0.0.9"}}, r"row 7 .* was computed by linnet 0\.0\.9, and the run by"),
        ({"config": {"experiment": "plain", "i": 5, "seed": 2}}, "row 7 .* belongs to budget hour, and the run has"),
        ({"config": {"experiment": "other", "i": 5}}, r"row 7 .* \(other, i 5\) belongs to no claim"),
    ],
    ids=["version", "budget", "claim"],
)
def test_rows_of_another_run_mixed_in_are_named_and_left_out_on_request(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    out = tmp_path / "out"
    whole = run(out)
    rows = out / "rows.jsonl"
    strange = json.loads(rows.read_text().splitlines()[0]) | {"config": {"experiment": "plain", "i": 0}} | change
    rows.write_text(rows.read_text() + json.dumps(strange) + "\n")
    with pytest.raises(StateError, match=expected):
        document(out, every=CLAIMS)
    result = document(out, every=CLAIMS, skip_damaged=True)
    assert scoreboard(result) == scoreboard(whole)
    assert len(result["damaged"]) == 1
    assert "row 7" in result["damaged"][0]


def test_a_damaged_line_is_named_then_left_out_on_request_and_never_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = run(out)
    rows = out / "rows.jsonl"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join([lines[0], '{"format": 1, "conf\n', *lines[2:]]))
    with pytest.raises(StateError, match=r"line 2 of .*rows\.jsonl is not a row"):
        run(out)
    with pytest.raises(StateError, match="line 2"):
        document(out, every=CLAIMS)
    assert len(document(out, every=CLAIMS, skip_damaged=True)["damaged"]) == 1
    run_again = begin(out, "quick", list(CLAIMS.values()), shipped=True)
    reproduce(list(CLAIMS.values()), run_again, out, skip_damaged=True)
    assert '{"format": 1, "conf\n' in rows.read_text()
    assert scoreboard(document(out, every=CLAIMS, skip_damaged=True)) == scoreboard(whole)


FULL = """
import resource, sys
from linnet.labs.core.results import Store
row = lambda i: {"format": 1, "config": {"i": i, "long": "x" * 100}, "metrics": {}}
with Store(sys.argv[1]) as store:
    store.append(row(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
    try:
        store.append(row(2))
    except OSError as error:
        print(error)
"""


def test_no_space_left_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "could not be added to" in done.stdout
    assert "the 1 earlier rows are kept: free space" in done.stdout
    assert path.read_text().endswith("}\n")
    assert [row["config"]["i"] for row in read_rows(path)] == [1]
    with Store(path) as store:
        store.append({"format": 1, "config": {"i": 2}, "metrics": {}})
    assert len(read_rows(path)) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (1.0004, "1.000"),
        (0.6441, "0.644"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (4462.4, "4,462"),
        (2e-15, "2e-15"),
        (float("nan"), "-"),
        (None, "-"),
    ],
)
def test_figures(value: Any, text: str) -> None:
    assert figures(value) == text


def test_a_number_without_an_interval_says_so() -> None:
    assert Number("x", None, 1.5).spread() == "-"
    assert Number("x", None, 1.5, 1.25, 1.75, "3 seeds", "s").spread() == "[1.250, 1.750] of 3 seeds"


def test_a_number_of_tokens_is_whole() -> None:
    crossover = Number("x", None, 46.94, 43.79, float("inf"), "15 rounds", "tokens")
    assert (crossover.shown(), crossover.spread()) == ("47 tokens", "[44, -] of 15 rounds")


def test_the_machine_of_a_document_is_that_of_most_rows() -> None:
    here, there = {"name": "here", "cores": 2}, {"name": "there", "cores": 4}
    rows = [{"commit": "a", "versions": {}, "machine": machine} for machine in (here, here, there)]
    content = about(Run("quick"), rows, 1.0)
    assert content["machine"] == here | {"rows": 2}
    assert content["other_machines"] == [there | {"rows": 1}]
    assert about(Run("quick"), [], 0.0)["machine"] == {}
