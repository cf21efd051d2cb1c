"""log.jsonl: one line per step whatever was killed when, and the same in TensorBoard."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from linnet.train.log import Event, RunLog, cut_log, read_log


def filled(folder: Path, steps: int) -> Path:
    log = RunLog(folder)
    for i in range(1, steps + 1):
        log.write(Event("step", i, {"loss": 1 / i}))
    log.close()
    return log.path


def test_one_json_object_per_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write(Event("step", 1, {"loss": 0.1, "lr": 1e-3}))
    log.write(Event("save", 1, {"folder": "x"}))  # may happen twice after a kill, so it is not logged
    log.write(Event("eval", 1, {"loss": 0.2, "per": float("inf")}))
    lines = log.path.read_text().splitlines()  # there already, with the file still open
    assert [json.loads(line) for line in lines] == [
        {"kind": "step", "step": 1, "loss": 0.1, "lr": 1e-3},
        {"kind": "eval", "step": 1, "loss": 0.2, "per": None},
    ]
    log.close()


def test_resume_cuts_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    path = filled(tmp_path, 7)
    path.write_bytes(path.read_bytes()[:-5])  # killed half-way through a line
    log = RunLog(tmp_path, step=4)
    log.write(Event("step", 5, {"loss": 9.0}))
    log.close()
    assert [(line["step"], line["loss"]) for line in read_log(path)] == [
        (1, 1),
        (2, 1 / 2),
        (3, 1 / 3),
        (4, 1 / 4),
        (5, 9),
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def test_losses_survive_the_cut_bit_for_bit(tmp_path: Path) -> None:
    path = filled(tmp_path, 50)
    before = path.read_bytes()
    cut_log(path, 50)
    assert path.read_bytes() == before


def test_a_new_run_starts_a_new_log(tmp_path: Path) -> None:
    path = filled(tmp_path, 3)
    RunLog(tmp_path).close()
    assert path.read_bytes() == b""


def test_resume_without_a_log(tmp_path: Path) -> None:
    RunLog(tmp_path, step=4).close()
    assert list(read_log(tmp_path / "log.jsonl")) == []


def test_tensorboard_holds_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = RunLog(tmp_path, tensorboard=True)
    for i in (1, 2):
        log.write(Event("step", i, {"loss": 0.5 * i}))
    log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("step/loss")] == [(1, 0.5), (2, 1.0)]


def test_without_tensorboard_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)  # what import makes of a package that is not there
    with pytest.raises(ValueError, match=r"neither tensorboard nor tensorboardX.*pip install 'linnet\[train\]'"):
        RunLog(tmp_path, tensorboard=True)
