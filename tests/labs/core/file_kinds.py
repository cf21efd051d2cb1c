"""The kinds of file that the laboratory reads, for the fuzzer in tests/fuzz/files.py."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from linnet.labs.core.clock import minutes, read_runs
from linnet.labs.core.folder import Run, read_failures, read_run
from linnet.labs.core.results import FORMAT, Store, read_rows
from tests.fuzz.file_kinds import JSON, LINES
from tests.fuzz.files import Kind


def make_rows(folder: Path) -> None:
    with Store(folder / "rows.jsonl") as store:
        for seed in range(6):
            config = {"experiment": "fuzz", "seed": seed, "sizes": [1, 2], "name": "a"}
            row = {"format": FORMAT, "config": config, "metrics": {"loss": seed / 3}, "seed": seed, "seconds": 0.5}
            store.append(row | {"info": {}, "commit": None, "versions": {}, "machine": {}})


def read_all_rows(folder: Path) -> Any:
    """Strictly, and with damaged lines left out: then all the others are there."""
    damaged: list[str] = []
    loose = read_rows(folder / "rows.jsonl", damaged=damaged)
    lines = (folder / "rows.jsonl").read_bytes().count(b"\n")
    assert len(loose) + len(damaged) == lines
    return read_rows(folder / "rows.jsonl")


def make_folder(folder: Path) -> None:
    (folder / "run.json").write_text(json.dumps(asdict(Run("quick", ("mnist",), ("a", "b"), started="2026-01-01"))))
    (folder / "failures.json").write_text(json.dumps([{"unit": "a", "error": "no", "keys": ["{}"]}]))
    runs = [{"started": "2026-01-01", "seconds": 1.5, "workers": 2, "rows": 3}]
    (folder / "clock.json").write_text(json.dumps({"format": 1, "runs": runs}))


def read_folder(folder: Path) -> Any:
    assert minutes(folder / "clock.json") >= 0
    return read_run(folder), read_failures(folder), read_runs(folder / "clock.json")


KINDS: dict[str, Kind] = {
    "rows": Kind(make_rows, {"rows.jsonl": LINES}, read_all_rows),
    "reproduce folder": Kind(make_folder, {"run.json": JSON, "failures.json": JSON, "clock.json": JSON}, read_folder),
}
