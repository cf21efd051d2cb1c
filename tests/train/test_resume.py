"""What a resume refuses, by name, and what it may change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linnet.train import CheckpointError, checkpoint, fit, read_log
from linnet.train.resume import check_same_run
from tests.train.toy import Letters, settings, small_model


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fit(small_model(), Letters(), Letters(seed=1), settings(steps=4, save_every=2), out=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lr": 0.5}, r"lr is 0.5 but was 0.01 when step-00000004 was saved; resume with the old value, or start"),
        ({"seed": 3}, "seed is 3 but was 0"),
        ({"batch_size": 4}, "batch_size is 4 but was 8"),
        ({"optimizer": "radam"}, "optimizer is 'radam' but was 'adamw'"),
        ({"weight_decay": 0.5}, "weight_decay is 0.5 but was 0.01"),
    ],
)
def test_a_field_that_changes_the_numbers(run: Path, changes: dict[str, object], field: str) -> None:
    with pytest.raises(CheckpointError, match=field):
        fit(small_model(), Letters(), Letters(seed=1), settings(steps=8, **changes), out=run, resume=True)


def test_other_data(run: Path) -> None:
    with pytest.raises(
        CheckpointError, match="the fingerprint of the train data is 'letters-40-12-5' but was 'letters-40"
    ):
        fit(small_model(), Letters(seed=5), Letters(seed=1), settings(steps=8), out=run, resume=True)
    with pytest.raises(CheckpointError, match="the fingerprint of the valid data is None"):
        fit(small_model(), Letters(), None, settings(steps=8), out=run, resume=True)


def test_data_that_only_the_checkpoint_has(run: Path) -> None:
    saved = checkpoint.read(run / "checkpoints" / "step-00000004")
    data = dict(saved.trainer["data"])
    saved.trainer["data"]["third"] = "letters"
    with pytest.raises(CheckpointError, match="the fingerprint of the third data is None but was 'letters'"):
        check_same_run(saved, small_model(), settings(steps=8), data)


def test_another_model(run: Path) -> None:
    with pytest.raises(CheckpointError, match="the model's n_layers is 3 but was 2"):
        fit(small_model(n_layers=3), Letters(), Letters(seed=1), settings(steps=8), out=run, resume=True)


def test_a_run_is_not_written_over(run: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a run already, up to step-00000004; continue it with --resume"):
        fit(small_model(), Letters(), Letters(seed=1), settings(), out=run)


def test_what_may_change(run: Path) -> None:
    config = settings(steps=8, save_every=1, eval_every=2, keep=1, log_every=2, accumulate=2)
    assert fit(small_model(), Letters(), Letters(seed=1), config, out=run, resume=True).step == 8


def test_a_finished_run_is_left_as_it_is(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    model = small_model(1)
    result = fit(model, Letters(), Letters(seed=1), settings(steps=4), out=run, resume=True)
    assert (result.step, result.stopped) == (4, "")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert torch.equal(model.embed.weight, checkpoint.load(run).model["embed.weight"])


def test_resume_with_nothing_there_starts(tmp_path: Path) -> None:
    texts = []
    note = lambda e: texts.append(e.text) if e.kind == "start" else None  # noqa: E731
    assert fit(small_model(), Letters(), None, settings(), out=tmp_path / "a", resume=True, on_event=note).step == 6
    assert texts[0].startswith("from the start, as there is no checkpoint yet; precision: float32")


def test_from_one_named_by_hand(run: Path) -> None:
    """It becomes the newest: the steps after it are taken again, and a later --resume continues from there."""
    whole = checkpoint.load(run).model
    config = settings(steps=4, save_every=3)
    with pytest.raises(KeyboardInterrupt):
        fit(small_model(1), Letters(), Letters(seed=1), config, out=run, resume="step-00000002", on_event=interrupt)
    assert (run / "latest").read_text() == "checkpoints/step-00000002\n"
    assert [line["step"] for line in read_log(run / "log.jsonl")] == [1, 2]
    model = small_model(2)
    fit(model, Letters(), Letters(seed=1), config, out=run, resume=True)
    assert all(torch.equal(whole[name], x) for name, x in model.state_dict().items())
    assert [line["step"] for line in read_log(run / "log.jsonl") if line["kind"] == "step"] == [1, 2, 3, 4]


def interrupt(event: object) -> None:
    raise KeyboardInterrupt
