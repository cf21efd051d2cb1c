"""`linnet bench ops --family gated`: each rule and competitor against float64, and what the tables say of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from linnet.cli import main
from linnet.labs.bench import gated_peers, gated_race, gated_rules
from linnet.labs.bench.gated import RULES, SECTION, GatedSettings, RuleCase, gated_plan, gated_settings
from linnet.labs.bench.gated_peers import LOOP, OURS, OURS_TORCH, THEIRS, TRANSFORMERS, YARDSTICK
from linnet.labs.bench.sizes import BOTH, FORWARD, MODES
from linnet.labs.cli import bench, bench_show
from linnet.native import library

LENGTH = gated_rules.SEGMENT + 9  # more than one segment of the reference


def case(rule: str, length: int = LENGTH) -> RuleCase:
    return RuleCase(1, 4, length, 8, 8, rule=rule)


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "ops", "--family", "gated", *args])
    return int(caught.value.code or 0)


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {**bench.conditions(GatedSettings()), "interrupted": False, "rows": {SECTION: list(rows)}}


def shown(content: dict[str, Any], markdown: bool = False) -> str:
    show = bench_show.in_markdown(bench_show.show) if markdown else bench_show.show
    out = io.StringIO()
    show(content, Console(file=out, width=200))
    return out.getvalue()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES)
def test_every_competitor_agrees_with_float64(rule: str, mode: str) -> None:
    row = gated_race.race(case(rule), mode, rounds=1, limit=600.0)
    json.dumps(row, allow_nan=False)
    entries = row["competitors"]
    expected = {OURS_TORCH, LOOP, YARDSTICK} | ({OURS} if library.library() else set())
    expected |= {TRANSFORMERS} if rule in THEIRS and find_spec("transformers") else set()
    assert {name for name, entry in entries.items() if entry["status"] == "ok"} >= expected
    for name in expected:
        assert entries[name]["error"] <= gated_rules.TOLERANCE
        assert entries[name]["ratio"] == pytest.approx(entries[name]["min_s"] / entries[row["baseline"]]["min_s"])
    assert row["of_elu"] == pytest.approx(1 / entries[YARDSTICK]["ratio"])


@pytest.mark.parametrize("rule", ["gla", "selective_scan", "wkv"])
def test_the_reference_is_that_of_the_whole_graph(rule: str) -> None:
    given = gated_rules.Given(case(rule))
    leaves = {name: x.double().requires_grad_(name in given.learned) for name, x in given.inputs.items()}
    out, _ = given.rule.truth(**leaves)
    whole = torch.autograd.grad(out, [leaves[name] for name in given.learned], given.g.double())
    torch.testing.assert_close(given.truth(BOTH), (out.detach(), *whole), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(given.truth(FORWARD), (out.detach(),))


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_competitor_is_reported_and_not_timed(mode: str) -> None:
    right = next(one for one in gated_peers.peers("gla") if one.name == OURS_TORCH)
    assert right.run is not None

    def late(**inputs: Tensor) -> Tensor:
        return right.run(**inputs) * 1.001  # type: ignore[misc]

    def broken(**inputs: Tensor) -> Tensor:
        raise RuntimeError("no kernel image")

    given = [right, replace(right, name="late", run=late), replace(right, name="broken", run=broken)]
    row = gated_race.race(case("gla", 20), mode, rounds=1, limit=60.0, competitors=given)
    late_entry, failed = row["competitors"]["late"], row["competitors"]["broken"]
    assert late_entry["status"] == "wrong"
    assert "min_s" not in late_entry
    assert (failed["status"], failed["reason"]) == ("failed", "RuntimeError: no kernel image")
    assert "late: wrong: off by" in shown(document(row))
    assert bench.trustworthy(document(row))
    row["competitors"][OURS] = late_entry
    assert not bench.trustworthy(document(row))


def test_slow_and_absent_competitors_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    row = gated_race.race(case("wkv", 20), FORWARD, rounds=1, limit=1e-9)
    assert "over the limit" in row["competitors"][LOOP]["reason"]
    monkeypatch.setattr(gated_peers, "find_spec", lambda name: None)
    row = gated_race.race(case("wkv", 20), FORWARD, rounds=1, limit=60.0)
    assert row["competitors"][TRANSFORMERS]["status"] == "left out"
    assert "pip install 'linnet[hf]'" in row["competitors"][TRANSFORMERS]["reason"]


def test_tables_of_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only = ("--only", "delta", "wkv", "--lengths", "20", "--streams", "2", "--head-dim", "8", "--threads", "1")
    assert status(*only, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert [(row["rule"], row["mode"]) for row in content["rows"][SECTION]] == [
        (rule, mode) for rule in ("delta", "wkv") for mode in MODES
    ]
    text = shown(content)
    for expected in ("forward+backward, threads 1, 2 x 20, width 8", "/ elu + 1", LOOP, "agree with float64"):
        assert expected in text
    assert "| delta |" in shown(content, markdown=True).replace("  ", "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--only", "glas"], "did you mean 'gla'?"),
        (["--rounds", "3"], "--rounds is 3"),
        (["--lengths", "0"], "--lengths has 0"),
        (["--streams", "0"], "--streams has 0"),
        (["--limit", "0"], "--limit is 0"),
        (["--plot", "ops.svg"], "draws the linear family"),
        (["--json", "--markdown"], "leave one out"),
    ],
)
def test_a_bad_option_is_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_plans() -> None:
    jobs = gated_plan(gated_settings(threads=(1,)))
    assert len(jobs) == len(RULES)
    assert all("8 x 2048, width 64, threads 1" in job.title for job in jobs)
    quick = gated_settings(quick=True, only=("gla",), lengths=(64, 128), threads=(1,))
    assert (len(gated_plan(quick)), quick.rounds) == (2, 7)
