"""Two commands on one folder: the second is refused with the name of the first, and changes nothing in it."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.cli import train_run
from linnet.models import LanguageModel
from linnet.train import CheckpointError, Event, ProcessGroup, fit, read_log
from tests.cli.command import TINY, linnet, refused
from tests.holder import files, held
from tests.train.processes import together
from tests.train.toy import Letters, settings, small_model

Capsys = pytest.CaptureFixture[str]
TEXT = (*TINY, "--seq-len", "32", "--save-every", "2")
PROCESSES = multiprocessing.get_context("fork")
WRITERS = {
    "train": ("train", "text", *TEXT, "--out"),
    "train again": ("train", "text", *TEXT, "--resume", "--out"),
    "resume": ("train", "resume"),
}
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("command", WRITERS.values(), ids=WRITERS.keys())
def test_a_folder_in_use(capsys: Capsys, command: tuple[str, ...]) -> None:
    out = Path("out")
    if command[1] == "resume":
        assert linnet(capsys, "train", "text", *TEXT, "--out", out).status == 0
    with held(out) as process:
        before = files(out)
        assert f"out is in use by process {process.pid}" in refused(capsys, *command, out)
        assert files(out) == before


def slow_run(out: Path, begun: Any, proceed: Any) -> None:
    """A run that waits after its second step until it is released."""

    def watch(event: Event) -> None:
        if (event.kind, event.step) == ("step", 2):
            begun.set()
            assert proceed.wait(60)

    fit(small_model(), Letters(), Letters(5), settings(save_every=3), out=out, on_event=watch)


def test_a_refused_run_leaves_the_other_alone(capsys: Capsys, tmp_path: Path) -> None:
    begun, proceed = PROCESSES.Event(), PROCESSES.Event()
    first = PROCESSES.Process(target=slow_run, args=(tmp_path, begun, proceed))
    first.start()
    try:
        assert begun.wait(60)
        before = files(tmp_path)
        assert f"in use by process {first.pid}" in refused(capsys, "train", "text", *TEXT, "--out", tmp_path)
        with pytest.raises(ValueError, match=f"in use by process {first.pid}"):
            fit(small_model(), Letters(), Letters(5), settings(), out=tmp_path, resume=True)
        assert files(tmp_path) == before
    finally:
        proceed.set()
        first.join(60)
    assert first.exitcode == 0
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl") if line["kind"] == "step"] == [*range(1, 7)]
    assert isinstance(LanguageModel.from_pretrained(tmp_path), LanguageModel)


def test_clean_up_removes_only_what_this_process_made(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program puts files into the folder while a command that is refused in the end reads its data."""
    opened = train_run.open_data

    def meanwhile(kind: str, settings: Any, out: Path, **how: Any) -> Any:
        (out / "checkpoints/step-00000001").mkdir(parents=True)
        (out / "latest").write_text("checkpoints/step-00000001\n")
        return opened(kind, settings, out, **how)

    monkeypatch.setattr(train_run, "open_data", meanwhile)
    refused(capsys, "train", "text", *TEXT, "--out", tmp_path / "out")
    assert files(tmp_path / "out").keys() == {"checkpoints", "checkpoints/step-00000001", "latest"}


def refused_together(group: ProcessGroup, out: Path) -> dict[str, torch.Tensor]:
    with pytest.raises((CheckpointError, ValueError), match="is in use by process"):
        fit(small_model(), Letters(), None, settings(), out=out, group=group)
    return {"rank": torch.tensor(group.rank)}


def test_of_several_processes_the_first_holds_the_folder(tmp_path: Path) -> None:
    with held(tmp_path / "run"):
        assert len(together(2, "ddp", tmp_path / "meet", refused_together, tmp_path / "run")) == 2
    assert os.listdir(tmp_path / "run") == [".lock"]  # of the one that was killed
