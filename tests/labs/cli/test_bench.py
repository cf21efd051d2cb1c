"""`linnet bench ops`: every number stands behind a passing comparison, and the document says what was and was not run.

Nothing here depends on how fast this machine is.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import linnet
from linnet.cli import main
from linnet.labs.bench import competitors, per_token, race, reference, timing, whole
from linnet.labs.bench.inputs import Inputs
from linnet.labs.bench.jobs import SECTIONS, Job, Settings, plan, settings
from linnet.labs.bench.sizes import BOTH, FORWARD, MODES, Case
from linnet.labs.cli import bench, bench_frame, bench_show
from tests.cli.command import help_without_torch

EXACT = 1e-10  # float64, of the largest number
TINY = ("--only", "ops", "--lengths", "64", "200", "--streams", "2", "--head-dim", "64", "--threads", "1")
MEBIBYTE = 2**20


def has_compiler() -> bool:
    try:
        return bool(per_token.compiler())
    except per_token.Unavailable:
        return False


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "ops", *args])
    return int(caught.value.code or 0)


def shown(document: dict[str, Any]) -> str:
    out = io.StringIO()
    bench_show.show(document, Console(file=out, width=200))
    return out.getvalue()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A whole run in a process of its own: its document and its picture."""
    picture = tmp_path_factory.mktemp("bench") / "ops.png"
    command = [sys.executable, "-m", "linnet.cli.main", "bench", "ops", *TINY, "--json", "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), picture


def one_race(one: competitors.Competitor, mode: str = FORWARD, limit: float = 60.0) -> dict[str, Any]:
    others = [outcome for outcome in competitors.for_elu() if outcome.name == competitors.OURS_TORCH]
    return race.race(Case(1, 2, 40, 16, 16), mode, [*others, one], rounds=1, limit=limit)


def test_help_teaches_without_torch() -> None:
    text = help_without_torch("bench", "ops")
    for expected in ("linnet bench ops --quick", "--plot ops.png", "--lengths", "--threads", "--rounds"):
        assert expected in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--rounds", "3"], "--rounds is 3"),
        (["--threads", "4096"], "--threads has 4096"),
        (["--lengths", "0"], "--lengths has 0"),
        (["--head-dim", "-1"], "--head-dim has -1"),
        (["--streams"], "--streams has no value"),
        (["--limit", "0"], "--limit is 0"),
        (["--only", "opps"], "did you mean 'ops'?"),
        (["--family", "gates"], "unknown family 'gates'"),
        (["--plot", "ops.gif"], "'.gif'"),
        (["--plot", "ops.png", "--only", "block"], "--only block"),
        (["--plot", "no-such-folder/ops.png"], "no-such-folder"),
    ],
)
def test_a_bad_option_is_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("linnet: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_picture_without_matplotlib_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    assert status("--plot", "ops.png") == 2
    assert "pip install 'linnet[report]'" in capsys.readouterr().err


def test_document_holds_every_case(tiny: tuple[dict[str, Any], Path]) -> None:
    document = tiny[0]
    assert document["format"] == bench_frame.FORMAT
    assert document["interrupted"] is False
    assert document["rounds"] == Settings().rounds
    assert document["versions"]["torch"] == torch.__version__
    assert document["machine"]["cores"] >= 1
    assert list(document["rows"]) == ["ops"]
    cases = [(row["length"], row["mode"]) for row in document["rows"]["ops"]]
    assert cases == [(length, mode) for length in (64, 200) for mode in MODES]
    for row in document["rows"]["ops"]:
        assert (row["threads"], row["streams"], row["head_dim"], row["value_dim"]) == (1, 2, 64, 64)
        assert row["sgemm"]["gflops"] > 0
        assert set(row["competitors"]) == set(document["competitors"])


def test_every_competitor_present_was_checked(tiny: tuple[dict[str, Any], Path]) -> None:
    document = tiny[0]
    expected = {"linnet torch", "sdpa", "torch batched 64", "torch batched 128", "torch loop 128", "cumsum"}
    expected |= {"linnet"} if document["native"]["loaded"] else set()
    expected |= {"per-token", "per-token native"} if has_compiler() else set()
    for row in document["rows"]["ops"]:
        ok = {name for name, entry in row["competitors"].items() if entry["status"] == "ok"}
        assert ok >= expected
        for name, entry in row["competitors"].items():
            if name not in ok:
                assert entry["status"] == "left out"
                assert entry["reason"]
                continue
            assert 0 < entry["error"] <= document["tolerance"]
            assert entry["rounds"] == document["rounds"]
            assert 0 < entry["min_s"] <= entry["median_s"]


def test_ratios_and_per_cents_follow_from_the_times(tiny: tuple[dict[str, Any], Path]) -> None:
    for row in tiny[0]["rows"]["ops"]:
        base, tokens = row["competitors"][row["baseline"]], row["streams"] * row["length"]
        flops = {FORWARD: 4, BOTH: 14}[row["mode"]] * 64 * 64 * tokens
        for entry in row["competitors"].values():
            if entry["status"] == "ok":
                assert entry["ratio"] == pytest.approx(entry["min_s"] / base["min_s"])
                assert entry["ns_per_token_head"] == pytest.approx(entry["min_s"] / tokens * 1e9)
                percent = 100 * flops / entry["min_s"] / (row["sgemm"]["gflops"] * 1e9)
                assert entry["floor_percent"] == pytest.approx(percent)
        plain = [name for name in row["competitors"] if name.startswith("torch ") or name == "linnet torch"]
        assert row["best_torch"] == min(plain, key=lambda name: row["competitors"][name]["min_s"])


def test_tables_and_picture(tiny: tuple[dict[str, Any], Path]) -> None:
    document, picture = tiny
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = shown(document)
    for expected in ("forward, threads 1, width 64", "2 x 200", "sdpa", "high-water mark", "agree with float64"):
        assert expected in text


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_competitor_is_reported_and_not_timed(mode: str) -> None:
    def late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Right but for the last token, which also hears a later one that does not exist."""
        out, _ = linnet.linear_attention(q, k, v, backend="torch")
        return torch.cat([out[:, :-1], out[:, -1:] * 1.001], dim=1)

    row = one_race(competitors.Competitor("late", "one token off", late, layout="bthd"), mode)
    entry = row["competitors"]["late"]
    assert entry["status"] == "wrong"
    assert entry["error"] > reference.TOLERANCE
    assert "min_s" not in entry
    assert row["competitors"][competitors.OURS_TORCH]["status"] == "ok"
    document = {**bench.conditions(Settings()), "interrupted": False, "rows": {"ops": [row]}}
    assert "late: wrong: off by" in shown(document)
    assert bench.trustworthy(document)
    row["competitors"]["linnet"] = entry
    assert not bench.trustworthy(document)


def test_a_wrong_gradient_is_found_where_the_output_is_right() -> None:
    def small_key_gradient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linnet.linear_attention(q, k - (k - k.detach()) * 0.1, v, backend="torch")[0]

    one = competitors.Competitor("leaky", "", small_key_gradient, layout="bthd")
    assert one_race(one, FORWARD)["competitors"]["leaky"]["status"] == "ok"
    assert one_race(one, BOTH)["competitors"]["leaky"]["status"] == "wrong"


def test_nan_is_wrong_and_an_exception_is_a_failure() -> None:
    def nan(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return v * float("nan")

    def broken(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise RuntimeError("no kernel image")

    row = one_race(competitors.Competitor("nan", "", nan))
    assert row["competitors"]["nan"]["status"] == "wrong"
    json.dumps(row, allow_nan=False)
    entry = one_race(competitors.Competitor("broken", "", broken))["competitors"]["broken"]
    assert (entry["status"], entry["reason"]) == ("failed", "RuntimeError: no kernel image")


def test_hopeless_cases_are_left_out_with_the_reason() -> None:
    sdpa = next(one for one in competitors.for_elu() if one.name == "sdpa")
    slow = one_race(sdpa, limit=1e-9)["competitors"]["sdpa"]
    assert slow["status"] == "left out"
    assert "over the limit" in slow["reason"]
    huge = replace(sdpa, flops=None, bytes=lambda case, mode: 1e15)
    assert "GiB of memory" in one_race(huge)["competitors"]["sdpa"]["reason"]


@pytest.mark.parametrize("kernel", ["elu", "taylor", "square", "rebased"])
@pytest.mark.parametrize("length", [33, reference.FULL + 7])
def test_reference_agrees_with_the_op_in_float64(kernel: str, length: int) -> None:
    given = Inputs(2, length, 2, 4, 3)
    given.bthd = tuple(x.double() for x in given.bthd)
    phi = "elu" if kernel == "elu" else competitors.quadratic_map(Case(1, 2, length, 4, 3, kernel)).double()
    q, k, v, g = given.given("bthd", BOTH)
    out, _ = linnet.linear_attention(q, k, v, feature_map=phi, form="recurrent")
    result = (out, *torch.autograd.grad(out, (q, k, v), g))
    assert reference.error(kernel, given, "bthd", result) < EXACT
    assert reference.error(kernel, given, "bthd", (*result[:3], result[3] * (1 + 1e-6))) > EXACT


def test_reference_of_softmax_is_softmax() -> None:
    given = Inputs(1, 50, 2, 8, 8)
    q, k, v, g = (x.double() for x in given.given("bhtd", FORWARD))
    q.requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    dq = torch.autograd.grad(out, q, g)[0]
    assert reference.error("softmax", given, "bhtd", (out, dq)) < EXACT


def test_last_outputs_do_not_depend_on_the_block() -> None:
    q, k, v = (x[0] for x in Inputs(1, 100, 2, 8, 8).bthd[:3])
    whole_sequence = reference.attend("elu", q.double(), k.double(), v.double(), 0)
    for block in (7, 64, 1000):
        late = reference.last_outputs(q, k, v, rows=9, block=block)
        assert reference.relative(late, whole_sequence[-9:]) < EXACT


def test_rounds_are_interleaved() -> None:
    log: list[str] = []
    calls = {name: (lambda name=name: log.append(name)) for name in "abc"}
    seconds = timing.interleave(calls, rounds=6)
    assert {name: len(outcome) for name, outcome in seconds.items()} == dict.fromkeys("abc", 6)
    turns = [a for a, b in zip(log, [*log[1:], ""], strict=True) if a != b]  # repetitions within a turn count once
    assert "".join(turns[-17:]) in "abcbcacababcbcacab"  # every round begins with another


def test_extra_memory_is_what_the_call_took() -> None:
    def call() -> Tensor:
        scratch = torch.ones(32 * MEBIBYTE // 4)
        return scratch[:1] + torch.ones(16 * MEBIBYTE // 4)

    result, extra = timing.extra_memory(call)
    assert result.shape == (16 * MEBIBYTE // 4,)
    if extra is not None:  # the system tells
        assert 62 * MEBIBYTE < extra < 68 * MEBIBYTE  # scratch 32, ones 16, the sum 16


def test_extra_memory_counts_memory_that_is_used_again() -> None:
    def call() -> list[Tensor]:
        return [torch.ones(16384) for _ in range(512)]  # 64 KiB each: small enough to stay in the allocator when freed

    call()
    extra = timing.extra_memory(call)[1]
    assert extra is None or extra > 30 * MEBIBYTE


def test_without_a_compiler_the_c_competitors_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("CXX", "no-such-compiler")
    per_token._compiled.cache_clear()
    outcome = {one.name: one for one in competitors.for_elu()}
    assert outcome["per-token"].run is None
    assert "no C compiler found (looked for no-such-compiler)" in outcome["per-token"].about
    row = whole.built()
    assert row["status"] == "failed"
    assert "no-such-compiler" in row["reason"]


def test_sections_beside_the_ops() -> None:
    rows = {
        "quadratic": plan(settings(only=("quadratic",), lengths=(70,), threads=(1,), rounds=7))[0].run(),
        "threads": [whole.threads(2, 70, mode, (1, 2), 2) for mode in MODES],
        "block": [whole.block(20, mode, 1, 2) for mode in MODES],
        "long": [whole.long(1, 2, length=3000)],
        "build": [{"status": "ok", "seconds": 1.0, "bytes": 100_000}],
    }
    torch.set_num_threads(1)
    for row in rows["quadratic"]:
        assert row["feature_map"] == "taylor"
        assert row["feature_dim"] == 153
        assert {entry["status"] for entry in row["competitors"].values()} <= {"ok", "left out"}
        assert row["competitors"]["linnet torch"]["status"] == "ok"
    assert all(row["identical"] for row in rows["threads"])
    assert rows["block"][0]["times"]["none"]["ratio"] == 1
    assert rows["long"][0]["error"] < reference.TOLERANCE
    text = shown({**bench.conditions(Settings()), "interrupted": False, "rows": rows})
    for expected in (
        "taylor 70",
        "speedup over one thread",
        "without attention",
        "last tokens",
        "from source: 1.0 s, 100 KB",
    ):
        assert expected in text


def test_an_interrupted_run_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = {"status": "ok", "seconds": 1.5, "bytes": 200_000}

    def stop() -> list[dict[str, Any]]:
        raise KeyboardInterrupt

    jobs = [Job("build", "first", 1.0, lambda: [done]), Job("build", "second", 1.0, stop)]
    monkeypatch.setattr(bench, "plan", lambda chosen: jobs)
    assert status("--only", "build", "--json") == 130
    document = json.loads(capsys.readouterr().out)
    assert document["interrupted"] is True
    assert document["rows"] == {"build": [done]}
    assert status("--only", "build") == 130
    assert "Interrupted" in capsys.readouterr().out


def test_plans() -> None:
    usual = plan(Settings(threads=(1,)))
    assert {job.section for job in usual} == set(SECTIONS) - {"threads"}  # one number of threads compares with nothing
    assert any("8 x 65536" in job.title for job in usual)
    small = plan(settings(quick=True, threads=(1,)))
    assert {job.section for job in small} == {"ops", "build"}
    assert sum(job.seconds for job in small) < 40
    asked = settings(quick=True, lengths=(100,), rounds=11)
    assert (asked.lengths, asked.rounds, asked.streams) == ((100,), 11, (8,))
