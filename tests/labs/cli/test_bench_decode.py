"""`linnet bench decode`: its document, its tables, its picture, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.cli import main
from linnet.labs.bench import decode as plans
from linnet.labs.bench import decode_images, decode_long, decode_race
from linnet.labs.bench.decode import DecodeSettings, plan
from linnet.labs.bench.decode_race import CACHE, EAGER, IN_PLACE, random_model
from linnet.labs.cli import bench_decode, bench_frame
from linnet.layers import MIXERS, RECURRENT_MIXERS
from tests.cli.command import help_without_torch

TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}
FAST = ("--quick", "--threads", "1", "--context", "150")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same networks and images, small."""
    monkeypatch.setattr(decode_race, "random_model", partial(random_model, **TINY))
    monkeypatch.setitem(decode_images.LENGTHS, "mnist", 5)
    monkeypatch.setattr(decode_long, "TURNS", 3)
    yield
    torch.set_num_threads(1)


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "decode", *args])
    return int(caught.value.code or 0)


@pytest.mark.usefixtures("tiny")
def test_the_whole_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "decode.png"
    assert status(*FAST, "--batch", "1,2", "--images", "--soak", "120", "--plot", str(picture), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == bench_frame.FORMAT
    assert (document["preset"], document["context"], document["rounds"]) == ("mnist", 150, 3)
    assert {name: len(rows) for name, rows in document["rows"].items()} == {
        "steps": 2,
        "images": 2,
        "curve": 1,
        "soak": 1,
    }
    assert [row["batch"] for row in document["rows"]["steps"]] == [1, 2]
    for row in document["rows"]["steps"]:
        assert {EAGER, IN_PLACE, CACHE} <= set(row["competitors"])
        assert row["competitors"][IN_PLACE]["faster_than"][EAGER] > 0
    assert set(document["competitors"]) >= set(document["rows"]["steps"][0]["competitors"])
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.usefixtures("tiny")
def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*FAST, "--weights", "float32", "--images", "--soak", "120", "--mixers", "kda,mamba") == 0
    out = capsys.readouterr().out
    for expected in (
        "one step, batch 1, threads 1, softmax sees 150 tokens",
        "x softmax cache",
        "MB of weights read at",
        "the matrices of a step alone: torch",
        "one step with each mixer, batch 1, threads 1",
        "kda",
        "images of 5 values",
        "paper, unnamed CPU",
        "soak: 120 tokens of one stream",
        "outputs finite",
        "softmax attention in plain torch",
    ):
        assert expected in out
    assert "int8" not in out


@pytest.mark.usefixtures("tiny")
def test_a_table_of_a_curve_without_softmax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decode_long, "too_large", lambda size: "no room today")
    assert status(*FAST, "--no-steps", "--plot", str(tmp_path / "x.svg")) == 0
    assert "left out: no room today" in capsys.readouterr().out
    assert (tmp_path / "x.svg").read_text().count("softmax, cache") == 0


@pytest.mark.usefixtures("tiny")
def test_our_own_wrong_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(decode_race.TOLERANCES, "float32", 1e-12)
    assert status(*FAST) == 1
    assert "wrong: off by" in capsys.readouterr().out


def test_an_interrupted_run_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*args: Any, **how: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(decode_race, "race", stop)
    assert status("--quick", "--json") == 130
    document = json.loads(capsys.readouterr().out)
    assert document["interrupted"] is True
    assert document["rows"] == {"steps": []}


def test_commas_and_spaces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[DecodeSettings] = []

    def keep(settings: DecodeSettings, console: Any) -> dict[str, Any]:
        seen.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_decode, "measure", keep)
    for args in (
        ("--batch", "1,64", "--weights", "int8,float32"),
        ("--batch", "1", "64", "--weights", "int8", "float32"),
    ):
        assert status(*args) == 130
    assert seen[0] == seen[1]
    assert (seen[0].batches, seen[0].weights, seen[0].rounds) == ((1, 64), ("int8", "float32"), 9)


def test_a_plan_has_a_job_for_each_case() -> None:
    two = plans.MIXERS[:2]
    jobs = plan(DecodeSettings(batches=(1, 8), threads=(1,), images=True, curve=True, soak=1000, mixers=two))
    assert [job.section for job in jobs] == [*["steps"] * 2, *["mixers"] * 4, *["images"] * 2, "curve", "soak"]
    assert set(RECURRENT_MIXERS) < set(plans.MIXERS) <= set(MIXERS)
    assert all(job.seconds > 0 for job in jobs)
    assert set(plans.SIZES) == set(decode_images.LENGTHS) == set(decode_images.PAPER_SECONDS)
    assert {name: tokens for name, (_, tokens) in plans.SIZES.items()} == decode_images.LENGTHS


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--preset", "mnits"], "did you mean 'mnist'?"),
        (["--weights", "int4"], "did you mean 'int8'?"),
        (["--mixers", "all,mambo"], "did you mean 'mamba'?"),
        (["--batch", "1,0"], "--batch has 0; accepted: integers >= 1"),
        (["--batch", ","], "--batch has no value"),
        (["--threads", "4096"], "--threads has 4096"),
        (["--rounds", "2"], "--rounds is 2"),
        (["--context", "0"], "--context is 0"),
        (["--soak", "100"], "--soak is 100; accepted: more than 100 tokens"),
        (["--no-steps"], "--no-steps leaves nothing to measure"),
        (["--plot", "x.png", "--context", "50"], "--plot needs a --context over 100 tokens"),
        (["--plot", "x.gif"], "unknown kind of figure '.gif'"),
        (["--plot", "no/such/folder/x.png"], "there is no folder"),
    ],
)
def test_a_bad_option_is_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_help_teaches_without_torch() -> None:
    text = help_without_torch("bench", "decode")
    assert "linnet bench decode --quick" in text
