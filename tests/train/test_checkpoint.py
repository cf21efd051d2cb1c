"""Checkpoints: whole or not there, damage refused by name with a way out, a full disk survived, old ones removed."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from linnet.models import LanguageModel
from linnet.train import CheckpointError, checkpoint, fit
from tests.full_disk import largest_file
from tests.train.toy import Letters, settings, small_model

FILES = ("config.json", "model.safetensors", "optimizer.safetensors", "trainer.json")
MOMENTS = {"embed.weight.exp_avg": torch.randn(3, 2), "embed.weight.step": torch.tensor(4.0)}


def saved(out: Path, *steps: int) -> Path:
    """The last of a few checkpoints."""
    model = small_model()
    for step in steps:
        folder = checkpoint.save(out, {"step": step, "meta": {"a": (1, 2)}}, model.save_pretrained, MOMENTS)
    return folder


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    folder = saved(tmp_path, 3)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (tmp_path / "latest").read_text() == "checkpoints/step-00000003\n"
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert (loaded.folder, loaded.trainer["step"], loaded.trainer["meta"]) == (folder, 3, {"a": [1, 2]})
    assert same(loaded.optimizer, MOMENTS)
    assert same(loaded.model, dict(small_model().state_dict()))
    assert same(LanguageModel.from_pretrained(tmp_path).state_dict(), loaded.model)  # a run's folder is a model's


def test_nothing_but_safetensors_and_json(tmp_path: Path) -> None:
    for path in saved(tmp_path, 3).iterdir():
        data = path.read_bytes()
        json.loads(data if path.suffix == ".json" else data[8 : 8 + int.from_bytes(data[:8], "little")])


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "not there") is None


def test_one_can_be_named(tmp_path: Path) -> None:
    saved(tmp_path, 3, 6)
    loaded = checkpoint.load(tmp_path, "step-00000003")
    assert loaded is not None
    assert loaded.trainer["step"] == 3
    with pytest.raises(CheckpointError, match=r"'step-3', which is not in .*; accepted: step-00000003, step-00000006"):
        checkpoint.load(tmp_path, "step-3")


@pytest.mark.parametrize("name", FILES)
def test_cut_in_half(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, 3, 6) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(tmp_path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith("pass resume='step-00000003' to continue from the newest older good checkpoint")


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_seen(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, 6) / name
    good = path.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 40)):
        flipped = bytearray(good)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        if name == "trainer.json" and flipped.split() == good.split():
            continue  # a space became another space
        with pytest.raises(CheckpointError, match=r"there is no older good checkpoint, so start again"):
            checkpoint.load(tmp_path)
    path.write_bytes(good)
    assert checkpoint.load(tmp_path) is not None


@pytest.mark.parametrize("name", FILES)
def test_missing_file(tmp_path: Path, name: str) -> None:
    (saved(tmp_path, 6) / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        checkpoint.load(tmp_path)


def test_changed_shape(tmp_path: Path) -> None:
    path = saved(tmp_path, 3, 6) / "model.safetensors"
    tensors = load_file(path)
    tensors["embed.weight"] = tensors["embed.weight"].T.contiguous()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"model.safetensors (is damaged|has \d+ bytes).*resume='step-00000003'"):
        checkpoint.load(tmp_path)


def test_the_older_one_offered_is_a_good_one(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4)
    for step in (2, 3, 4):
        (tmp_path / "checkpoints" / f"step-0000000{step}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="resume='step-00000001'"):
        checkpoint.load(tmp_path)


def test_a_pointer_that_points_elsewhere(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    for text in ("../../etc", "", "checkpoints/step-3"):
        (tmp_path / "latest").write_text(text)
        with pytest.raises(CheckpointError, match=r"latest says .*; pass resume='step-00000003'"):
            checkpoint.load(tmp_path)
    (tmp_path / "latest").unlink()  # killed between the very first folder and its pointer
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.trainer["step"] == 3


def test_another_version(tmp_path: Path) -> None:
    path = saved(tmp_path, 3) / "trainer.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(
        CheckpointError, match="is linnet-checkpoint version 2, and this linnet reads linnet-checkpoint 1"
    ):
        checkpoint.load(tmp_path)


def test_a_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    saved(tmp_path, 3, 6)
    checkpoint.save(tmp_path, {"step": 3, "again": True}, small_model().save_pretrained, MOMENTS)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.trainer["again"]
    assert checkpoint.names(tmp_path) == ["step-00000003", "step-00000006"]


def test_prune_spares_the_newest_the_best_and_what_latest_names(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4, 5)
    checkpoint.prune(tmp_path, 5, keep=2, best=2)
    assert checkpoint.names(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]
    checkpoint.set_latest(tmp_path, "step-00000002")
    checkpoint.prune(tmp_path, 5, keep=1, best=None)
    assert checkpoint.names(tmp_path) == ["step-00000002", "step-00000005"]


def test_prune_leaves_what_is_ahead(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 9)
    checkpoint.prune(tmp_path, 2, keep=1, best=None)
    assert checkpoint.names(tmp_path) == ["step-00000002", "step-00000009"]


def test_steps_beyond_eight_digits_stay_in_order(tmp_path: Path) -> None:
    saved(tmp_path, 99_999_999, 100_000_000)
    assert checkpoint.names(tmp_path) == ["step-99999999", "step-100000000"]
    checkpoint.prune(tmp_path, 100_000_000, keep=1, best=None)
    assert checkpoint.names(tmp_path) == ["step-100000000"]


def test_leftovers_of_a_kill_are_cleaned(tmp_path: Path) -> None:
    folder = saved(tmp_path, 3)
    os.rename(folder, folder.with_name(".step-00000006.abc.tmp"))
    (tmp_path / ".latest.abc.tmp").write_text("x")
    checkpoint.clean(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoints", "latest"]


@pytest.mark.parametrize("size", [0, 100, 20_000, 40_000])
def test_disk_full(tmp_path: Path, size: int) -> None:
    """In the configuration, the weights or the moments: the sentence, no leftovers, the last good one untouched."""
    out = tmp_path / "run"
    source, model = Letters(), small_model()
    fit(model, source, None, settings(steps=2), out=out)
    good = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    state, config = dict(model.state_dict()), {"step": 4}
    moments = {"embed.weight.exp_avg": torch.zeros(20_000)}
    with largest_file(size), pytest.raises(CheckpointError) as error:
        checkpoint.save(out, config, lambda to: model.save_pretrained(to, state), moments)
    assert "step-00000004 could not be written" in str(error.value)
    assert str(error.value).endswith(
        "the last good checkpoint is step-00000002: free some space and continue from it with --resume"
    )
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == good
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000002"]


def test_disk_full_while_training_stops_the_run(tmp_path: Path) -> None:
    config = settings(steps=9, save_every=3, eval_every=3)

    def fill(event: object) -> None:
        if (event.kind, event.step) == ("eval", 6):
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(CheckpointError, match="so training stops here; the last good checkpoint is step-00000003"):
            fit(small_model(), Letters(), Letters(), config, out=tmp_path, on_event=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    result = fit(small_model(1), Letters(), Letters(), config, out=tmp_path, resume=True)
    assert result.step == 9


def test_a_log_that_cannot_grow_stops_the_run(tmp_path: Path) -> None:
    with (
        largest_file(300),
        pytest.raises(CheckpointError, match=r"log.jsonl.*so training stops here; nothing was saved"),
    ):
        fit(small_model(), Letters(), None, settings(), out=tmp_path)
