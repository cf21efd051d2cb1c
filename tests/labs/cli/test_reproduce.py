"""`linnet reproduce` and `linnet report` as a user has them: a scoreboard, a page, going on, and bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from html import escape
from pathlib import Path

import pytest

from linnet.labs.claims import BUDGETS, RENAMED, chosen, claims
from linnet.labs.core.claim import Setting
from linnet.labs.core.results import key, read_rows
from tests.cli.command import linnet

ROOT = Path(__file__).resolve().parents[3]
FAST = ("kernels", "gradients")  # claims of a second
PATIENCE = 240.0
TIMES = ("seconds", "commit", "info")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduce") / "out"
    done = started("reproduce", *FAST, "--budget", "smoke", "--shipped", "--out", out, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "claims" in done.stdout
    assert "the page:" in done.stderr
    assert "about" in done.stderr
    return out


def started(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "linnet", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **env}, check=False)


def verdicts(document: dict[str, object]) -> list[object]:
    result = document["claims"]
    assert isinstance(result, list)
    return [(claim["name"], claim["outcome"], len(claim["numbers"])) for claim in result]


def test_a_page_and_a_scoreboard(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name in FAST:
        assert escape(claims()[name].statement) in page
        assert f"linnet reproduce {name} --budget smoke" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page


def test_report_makes_everything_again_from_the_rows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"again.{name}" for name in ("html", "markdown", "csv")}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    done = linnet(capsys, "report", folder, *options)
    assert done.status == 0
    assert "2 claims" in done.out
    assert files["html"].read_bytes() == (folder / "report.html").read_bytes()
    assert all(claims()[name].statement in files["markdown"].read_text() for name in FAST)
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert {row["claim"] for row in rows} == set(FAST)
    assert all(row["ours"] for row in rows)
    document = json.loads(linnet(capsys, "report", folder, "--json").out)
    assert verdicts(document)
    assert document["counts"]["error"] == 0


def test_report_puts_the_scoreboard_into_a_page_and_draws_figures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("# Mine\n\n<!-- scoreboard -->\nold\n<!-- end -->\n\nafter\n")
    other.write_text("# No place\n")
    done = linnet(capsys, "report", folder, "--into", page, "--figures", tmp_path / "figures")
    assert done.status == 0
    text = page.read_text()
    assert text.startswith("# Mine\n\n<!-- scoreboard -->\n**")
    assert text.endswith("<!-- end -->\n\nafter\n")
    assert "old" not in text.split("<!-- end -->")[0].split("<!-- scoreboard -->")[1].split()
    assert all(claims()[name].statement in text for name in FAST)
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"kernels-1.svg", "gradients-1.svg"}
    done = linnet(capsys, "report", folder, "--into", other)
    assert done.status == 2
    assert "has no block such as <!-- scoreboard -->" in done.err
    assert other.read_text() == "# No place\n"


def test_going_on_makes_no_row_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "rows.jsonl").read_bytes()
    done = linnet(capsys, "reproduce", *FAST, "--budget", "smoke", "--shipped", "--out", folder, "--workers", "1")
    assert done.status == 0
    assert "0 rows to compute" in done.err
    assert (folder / "rows.jsonl").read_bytes() == before


def test_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    done = linnet(capsys, "reproduce", "--list")
    assert done.status == 0
    assert all(name in done.out for name in claims())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("nonsense",), "unknown claim 'nonsense'"),
        (("all", "--budget", "week"), "unknown budget 'week'"),
        (("forms", "--budget", "day"), "'forms'; accepted: with --budget day one of"),
        (("--plan",), "--plan is given with --budget quick; accepted: with --budget day"),
        (("--join", "runs"), "--join is given with --budget quick; accepted: with --budget day"),
        (("all", "--workers", "0"), "workers is '0'"),
        (("all", "--minutes", "0"), "--minutes is '0'; accepted: a number above 0"),
        (("all", "--minutes", "soon"), "--minutes is 'soon'; accepted: a number above 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    args: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = linnet(capsys, "reproduce", *args, "--out", tmp_path / "new")
    assert done.status == 2
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new").exists()
    if expected.startswith("unknown claim"):
        assert all(name in done.err for name in ("all", "rnn", "icl", *claims()))
    if expected.startswith("unknown budget"):
        assert all(name in done.err for name in BUDGETS)


def test_a_name_of_before_says_the_name_of_today_and_numbers_are_found_in_lower_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not RENAMED.keys() & claims().keys()
    assert set(RENAMED.values()) <= claims().keys()
    monkeypatch.setitem(RENAMED, "cores", "kernels")
    done = linnet(capsys, "reproduce", "cores", "--out", tmp_path / "new")
    assert done.status == 2
    assert "the claim 'cores' is now called 'kernels'" in done.err
    assert [claim.name for claim in chosen(["t1", "T2"])] == ["forms", "gradients"]


def test_a_data_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "gone"))
    done = linnet(capsys, "reproduce", "kernels", "--budget", "smoke", "--out", tmp_path / "new")
    assert done.status == 2
    assert "LINNET_DATA is" in done.err
    assert not (tmp_path / "new" / "run.json").exists()


def test_a_limit_of_time_runs_what_fits_and_names_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    what = ("reproduce", *FAST, "--budget", "smoke", "--shipped", "--out", tmp_path / "out", "--workers", "1")
    done = linnet(capsys, *what, "--minutes", "0.000001")
    assert done.status == 0
    assert "2 claims were not run for lack of time" in done.err
    document = json.loads(linnet(capsys, "report", tmp_path / "out", "--json").out)
    assert [claim["outcome"] for claim in document["claims"]] == ["not tested here"] * 2
    assert all("no time left" in claim["reason"] for claim in document["claims"])
    assert document["counts"]["error"] == 0
    done = linnet(capsys, *what, "--minutes", "10")
    assert done.status == 0
    assert "in at most 10 minutes" in done.err
    assert "not run for lack of time" not in done.err


def test_a_sealed_folder_names_the_row_that_was_edited(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert linnet(capsys, "report", copy, "--seal", "--evidence", tmp_path / "evidence.json").status == 0
    assert set(json.loads((tmp_path / "evidence.json").read_text())["claims"]) == set(FAST)
    rows = (copy / "rows.jsonl").read_text()
    (copy / "rows.jsonl").write_text(rows.replace('"seconds": ', '"seconds": 1', 1))
    done = linnet(capsys, "report", copy)
    assert done.status == 2
    assert "rows.jsonl was edited: line 1 (" in done.err
    assert done.err.count("\n") == 1


def test_a_damaged_file_is_named_by_line_with_the_way_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    lines = (copy / "rows.jsonl").read_bytes().splitlines(keepends=True)
    damaged = b"".join([b"not a row\n", *lines[1:]])
    (copy / "rows.jsonl").write_bytes(damaged)
    for command in (("report", copy), ("reproduce", *FAST, "--budget", "smoke", "--shipped", "--out", copy)):
        done = linnet(capsys, *command)
        assert done.status == 2
        assert "line 1 of" in done.err
        assert "--skip-damaged" in done.err
        assert (copy / "rows.jsonl").read_bytes() == damaged
    again = ("reproduce", *FAST, "--budget", "smoke", "--shipped", "--out", copy, "--workers", "1", "--skip-damaged")
    assert linnet(capsys, *again).status == 0
    assert (copy / "rows.jsonl").read_bytes().startswith(b"not a row\n")
    assert linnet(capsys, "report", copy, "--skip-damaged").status == 0


def test_a_folder_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    done = linnet(capsys, "reproduce", "kernels", "--out", tmp_path)
    assert done.status == 2
    assert "holds letter.txt but no run.json" in done.err
    assert linnet(capsys, "report", tmp_path).status == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("data", [(), ("mnist", "cifar10", "an4", "fsdd", "text", "fewshot", "tiny-lm")], ids=len)
def test_every_budget_of_every_claim_is_rows_that_json_can_hold(budget: str, data: tuple[str, ...]) -> None:
    setting = Setting(budget, data=frozenset(data))
    owner: dict[str, tuple[str, ...]] = {}
    for claim in claims().values():
        for unit in claim.work(setting):
            keys = tuple(key(config) for config in unit.configs)
            assert keys, claim.name
            assert unit.seconds > 0, claim.name
            assert all(json.loads(one) == config for one, config in zip(keys, unit.configs, strict=True)), claim.name
            assert all(owner.setdefault(one, keys) == keys for one in keys), f"{claim.name}: half of a unit is shared"


def test_every_claim_says_what_a_reader_needs() -> None:
    for claim in claims().values():
        assert claim.statement.endswith("."), claim.name
        assert min(map(len, (claim.statement, claim.source, claim.rule, claim.change))) > 20, claim.name
        assert claim.paper in ("rnn", "rebased", "icl", "open")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_smoke_of_everything_has_no_error(tmp_path: Path) -> None:
    done = started("reproduce", "--budget", "smoke", "--shipped", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    assert document["counts"]["error"] == 0
    assert len(document["claims"]) == len(claims())
    assert all(claim["missing"] == 0 for claim in document["claims"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_9_in_the_middle_then_the_same_scoreboard(tmp_path: Path) -> None:
    what = ("reproduce", "kernels", "ranking", "--budget", "smoke", "--shipped", "--workers", "2", "--json")
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "linnet", *what, "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + PATIENCE
    while not ((out / "rows.jsonl").exists() and (out / "rows.jsonl").read_text().count("\n") >= 3):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made = len(read_rows(out / "rows.jsonl"))
    time.sleep(1.0)  # workers leave with their parent, and with them the lock
    resumed, whole = (json.loads(started(*what, "--out", f).stdout) for f in (out, tmp_path / "whole"))
    assert made < resumed["rows"] == whole["rows"]
    assert [(c["outcome"], c["sentence"], c["numbers"]) for c in resumed["claims"]] == [
        (c["outcome"], c["sentence"], c["numbers"]) for c in whole["claims"]
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray_gives_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    what = ("reproduce", "kernels", "ranking", "--budget", "smoke", "--shipped", "--json")
    for workers in ("1", "ray"):
        done = started(*what, "--workers", workers, "--out", tmp_path / workers)
        assert done.returncode == 0, done.stderr[-3000:]
    one, other = (
        {key(row["config"]): row["metrics"] for row in read_rows(tmp_path / workers / "rows.jsonl")}
        for workers in ("1", "ray")
    )
    assert one == other
