"""`linnet.load`: one loader and one verification; damage, foreign types and a pointer out of the folder are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import linnet
from linnet.checksum import crc32_of_json
from linnet.data import ByteTokenizer
from linnet.models import Model
from linnet.train import CheckpointError, fit
from tests.train.toy import VOCAB, Letters, settings, small_model

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three checkpoints."""
    out = tmp_path_factory.mktemp("run")
    config = settings(steps=6, save_every=2, eval_every=2, lr=1e-2)
    fit(small_model(), Letters(), Letters(5), config, out=out)
    return out


def with_best(trained: Path, out: Path, step: int) -> Path:
    """A copy of the run the newest checkpoint of which names another one as the best."""
    shutil.copytree(trained, out)
    path = out / "checkpoints/step-00000006/trainer.json"
    content = json.loads(path.read_text())
    content["progress"]["best_step"] = step
    del content["crc32"]
    path.write_text(json.dumps(content | {"crc32": crc32_of_json(content)}))
    return out


def test_a_folder_of_save_pretrained(folder: Path) -> None:
    loaded = linnet.load(folder)
    assert isinstance(loaded, linnet.LoadedModel)
    assert (loaded.tokenizer, loaded.notes, loaded.folder, loaded.model.training) == (None, (), folder, False)
    assert loaded.config == loaded.model.config == small_model().config
    assert loaded.model.fingerprint() == small_model().fingerprint()
    with pytest.raises(ValueError, match=rf"has no tokenizer.json, and the model has {VOCAB} tokens; save the"):
        loaded.language()
    ByteTokenizer().save(folder)
    assert linnet.load(folder).tokenizer is not None


def test_every_flipped_bit_of_the_weights_is_refused(folder: Path) -> None:
    path = folder / WEIGHTS
    good = path.read_bytes()
    start = 8 + int.from_bytes(good[:8], "little")
    for at in range(start, len(good), max(1, (len(good) - start) // 40)):
        flipped(path, at)
        for load in (linnet.load, Model.from_pretrained):
            with pytest.raises(ValueError, match=r"is damaged: the fingerprint is not '\w{8}'; copy both again"):
                load(folder)
        path.write_bytes(good)


def test_a_changed_configuration_is_refused(folder: Path) -> None:
    """The shapes stay the same, so nothing else would tell."""
    values = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(values | {"n_heads": 4}))
    with pytest.raises(ValueError, match=r"config.json next to it is damaged"):
        linnet.load(folder)


def test_an_old_folder_loads_with_a_note(folder: Path) -> None:
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS)
    loaded = linnet.load(folder)
    assert loaded.model.fingerprint() == small_model().fingerprint()
    assert len(loaded.notes) == 1
    assert "without a checksum" in loaded.notes[0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_weights_of_another_kind_are_refused(folder: Path, dtype: torch.dtype) -> None:
    tensors = {name: x.clone() for name, x in load_file(folder / WEIGHTS).items()}
    tensors["embed.weight"] = tensors["embed.weight"].to(dtype)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ValueError, match=rf"'embed.weight' is {dtype} where the model has torch.float32; restore"):
        linnet.load(folder)


def test_half_precision_is_widened(folder: Path) -> None:
    small_model().bfloat16().save_pretrained(folder)
    loaded = linnet.load(folder)
    assert {x.dtype for x in loaded.model.parameters()} == {torch.float32}
    assert loaded.notes == ()


def test_which_checkpoint(trained: Path, tmp_path: Path) -> None:
    run = with_best(trained, tmp_path / "run", 4)
    loaded = linnet.load(run)
    assert loaded.folder.name == "step-00000004"
    assert loaded.notes == ("using step-00000004, the best by held-out loss; --checkpoint newest takes step-00000006",)
    for checkpoint, step in (("best", 4), ("newest", 6), ("2", 2), ("step-00000002", 2)):
        loaded = linnet.load(run, checkpoint=checkpoint)
        assert loaded.trainer is not None
        assert loaded.trainer["step"] == step
    for checkpoint in ("3", "nwest", "../x"):
        with pytest.raises(CheckpointError, match=r"is not in .*checkpoints; accepted: best, newest, step-00000002"):
            linnet.load(run, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="is not the folder of a run; leave it out"):
        linnet.load(run / "checkpoints/step-00000002", checkpoint="newest")


def test_the_best_may_be_gone(trained: Path, tmp_path: Path) -> None:
    assert linnet.load(with_best(trained, tmp_path / "run", 5)).folder.name == "step-00000006"


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "trainer.json"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_damaged_checkpoint_is_refused_with_a_way_out(trained: Path, tmp_path: Path, name: str, inside: bool) -> None:
    run = with_best(trained, tmp_path / "run", 4)
    flipped(run / "checkpoints/step-00000004" / name, -20)
    with pytest.raises(CheckpointError, match=name) as error:
        linnet.load(run / "checkpoints/step-00000004" if inside else run)
    if not inside:
        assert str(error.value).endswith("use another with --checkpoint step-00000006")
        assert linnet.load(run, checkpoint="step-00000006").trainer is not None


@pytest.mark.parametrize("text", ["../other", "/etc", "checkpoints/../../other", "checkpoints/step-1", "", "\xff" * 99])
def test_latest_names_a_checkpoint_and_nothing_else(folder: Path, tmp_path: Path, text: str) -> None:
    run, _ = tmp_path / "run", small_model().save_pretrained(tmp_path / "other")
    run.mkdir()
    (run / "latest").write_text(text, encoding="latin-1")
    for load in (linnet.load, Model.from_pretrained):
        with pytest.raises(ValueError, match=r"latest says .*; accepted: a name such as checkpoints/step-00001000"):
            load(run)


def test_a_checkpoint_is_no_link(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/step-00000006").symlink_to(trained / "checkpoints/step-00000006")
    (run / "latest").write_text("checkpoints/step-00000006\n")
    with pytest.raises(CheckpointError, match="is a link; accepted: a folder directly inside"):
        linnet.load(run)
