"""`linnet bench serve`: its tables and JSON, what is missing, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linnet.cli import main
from linnet.labs.bench.serve import PARTS, Bench
from linnet.labs.cli import bench_frame
from tests.cli.command import help_without_torch

GRID = {
    "server": "linnet linear", "streams": 8, "prompt": 2048, "tokens_per_second": 1234.5, "memory_bytes": 7_000_000,
    "decoding_tokens_per_second": None, "first_token_p50_s": 0.5, "first_token_max_s": 1.0, "gap_p50_s": 0.01,
    "gap_p99_s": 0.0425,
}  # fmt: skip
ROWS: dict[str, dict[str, Any]] = {
    "grid": GRID,
    "engine": {"streams": 32, "engine_tokens_per_second": [100.0], "server_tokens_per_second": [91.0], "share": 0.91},
    "stall": {
        "server": "linnet linear", "prompt": 32768, "read_s": 3.0, "gap_p50_s": 0.02, "gap_p99_s": 0.03, "ratio": 1.5,
        "gap_max_s": 0.04, "alone_p50_s": 0.01,
    },
    "idle": {"sessions": 10_000, "state_bytes": 4864, "memory_bytes": 6e6, "allowed_bytes": 5e7, "store_bytes": 9e7},
    "sessions": {
        "tokens": 100_000, "state_bytes": 16_896, "fork_median_s": 0.0024, "continue_median_s": 0.02, "start_s": 2.0,
    },
}  # fmt: skip


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "serve", *args])
    return int(caught.value.code or 0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are made up: this is a test of the tables."""

    def cell(self: Bench, name: str, streams: int, prompt: int) -> dict[str, Any]:
        row = {"server": name, "streams": streams, "prompt": prompt}
        return row | (
            {"left_out": "a reason [server]"} if name == "llama.cpp" else {k: GRID[k] for k in GRID if k not in row}
        )

    monkeypatch.setattr("linnet.labs.bench.serve_models.write_models", lambda folder, size: None)
    monkeypatch.setattr(Bench, "cell", cell)
    monkeypatch.setattr(Bench, "stall", lambda self, name: ROWS["stall"])
    for part in ("engine", "idle", "sessions"):
        monkeypatch.setattr(Bench, part, lambda self, part=part: ROWS[part])


@pytest.mark.usefixtures("quick")
def test_tables_markdown_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--streams", "8", "--prompts", "2048", "--servers", "linnet linear", "llama.cpp")
    assert status(*args) == 0
    shown = capsys.readouterr().out
    for expected in ("1,234", "42.5", "91%", "1.5", "10,000", "2.4", "grid llama.cpp 8 x 2,048: a reason [server]"):
        assert expected in shown
    assert status(*args, "--markdown") == 0
    shown = capsys.readouterr().out
    assert "| 8 | 2,048 | linnet linear | 1,234 | - | 500.0 | 1,000.0 | 10.0 | 42.5 | 7.0 |" in shown
    assert "- grid llama.cpp 8 x 2,048: a reason [server]" in shown
    assert status("--quick", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == bench_frame.FORMAT
    assert set(document["rows"]) == set(PARTS)
    assert [(row["prompt"], row["streams"]) for row in document["rows"]["grid"]][::4] == [(128, 1), (128, 8)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--size", "huge"), "unknown size 'huge'"),
        (("--only", "speed"), "unknown part 'speed'"),
        (("--servers", "vllm"), "unknown server 'vllm'"),
        (("--streams", "0"), "--streams is 0; accepted: 1 to 256"),
        (("--limit", "0"), "--limit is 0; accepted: 1 to 3600 seconds"),
        (("--json", "--markdown"), "--json and --markdown"),
    ],
)
def test_refused_in_one_sentence(args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    assert message in capsys.readouterr().err


def test_help_is_instant() -> None:
    assert "linnet bench serve --quick" in help_without_torch("bench", "serve")
