"""`linnet bench icl`: what it writes and what it refuses."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from linnet.cli import main
from linnet.labs.bench.icl import FORMS, ICLSettings
from linnet.labs.cli import bench_frame, bench_icl
from linnet.native import icl
from tests.cli.command import help_without_torch


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "icl", *args])
    return int(caught.value.code or 0)


def made_up(settings: ICLSettings, threads: int) -> dict[str, Any]:
    entry = {"min_s": 0.003, "median_s": 0.004, "sgemm_percent": 75.4, "slower": 21.5, "slower_median": 20.5}
    entry |= {"minutes": 10.0, "minutes_median": 13.3}
    return {"threads": threads, "sgemm": {"gflops": 150.0}, "forms": {name: dict(entry) for name in FORMS}}


def test_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_icl, "race", made_up)
    document = bench_icl.measure(ICLSettings(threads=(1,), batch=64), Console(file=io.StringIO()))
    out = io.StringIO()
    bench_icl.show(document, Console(file=out, width=150))
    for expected in (
        "full, 7 layers, batch 64, threads 1",
        "3.00 (4.00)",
        "21.5x (20.5x)",
        "10.0 (13.3)",
        "4 to 12 hours",
    ):
        assert expected in out.getvalue()
    assert status("--json", "--quick", "--model", "diag") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["format"] == bench_frame.FORMAT
    assert result["settings"] == {"model": "diag", "layers": 7, "batch": 2048, "threads": [1], "rounds": 3}
    assert [row["threads"] for row in result["rows"]] == [1]


def test_an_interrupted_run_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = iter([True, False])

    def stop(settings: ICLSettings, threads: int) -> dict[str, Any]:
        if not next(turns):
            raise KeyboardInterrupt
        return made_up(settings, threads)

    monkeypatch.setattr(bench_icl, "race", stop)
    assert status("--json", "--threads", "1", "1") == 130
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--rounds", "2"], "--rounds is 2"),
        (["--threads", "4096"], "--threads has 4096"),
        (["--layers", "1"], "--layers is 1"),
        (["--batch", "0"], "--batch is 0"),
        (["--model", "ful"], "did you mean 'full'?"),
    ],
)
def test_a_bad_option_is_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_without_native_code_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(icl, "available", lambda: False)
    assert status("--quick") == 2
    assert "there is no native code to time" in capsys.readouterr().err


def test_help_teaches_without_torch() -> None:
    assert "linnet bench icl --quick" in help_without_torch("bench", "icl")
