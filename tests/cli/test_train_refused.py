"""`linnet train` refuses: one sentence for whatever is wrong, and nothing left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from linnet.train import checkpoint
from tests.cli.command import (
    TINY,
    linnet,
    refused,
    weights,
    write_csv,
    write_speech,
)

Capsys = pytest.CaptureFixture[str]
SMALL_TEXT = (*TINY, "--seq-len", "32")
SMALL_STREAM = (*TINY, "--context", "16")
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--mixer", "rebasd"), r"unknown mixer 'rebasd'; did you mean 'rebased'\?"),
        (("--preset", "char-smal"), r"unknown preset 'char-smal'; did you mean 'char-small'\?"),
        (("--positions", "rotari"), r"unknown positions 'rotari'; did you mean 'rotary'\?"),
        (("--d-model", "30", "--n-heads", "4"), r"d_model \(30\) must be a multiple of n_heads \(4\)"),
        (("--steps", "0"), "--steps is 0; accepted: a whole number, 1 or more"),
        (("--batch-size", "6", "--accumulate", "4"), r"--accumulate is 4; accepted: a divisor of batch_size \(6\)"),
        (("--lr", "inf"), "--lr is inf"),
        (("--threads", "0"), "--threads is 0"),
        (("--tokenizer", "bpee"), r"unknown tokenizer.* 'bpee'; did you mean 'bpe'\?"),
        (("--seq-len", "100000"), "too few for seq_len = 100000"),
        (("--tokenizer", "bpe", "--vocab-size", "5"), "--vocab-size is 5"),
    ],
)
def test_a_bad_option_is_one_sentence(capsys: Capsys, book: Path, options: tuple[str, ...], named: str) -> None:
    assert re.search(named, refused(capsys, "train", "text", book, *SMALL_TEXT, *options))
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "there is no file"),
        (b"", "is empty"),
        (bytes(range(256)) * 20, "--allow-binary"),
        (b"\x1f\x8b\x08\x00damaged", "damaged gzip"),
    ],
)
def test_a_bad_text_leaves_nothing_behind(capsys: Capsys, content: bytes | None, named: str) -> None:
    if content is not None:
        Path("text.txt").write_bytes(content)
    before = sorted(Path().rglob("*"))
    sentence = refused(capsys, "train", "text", "text.txt", *SMALL_TEXT)
    assert named in sentence
    assert "text.txt" in sentence
    assert sorted(Path().rglob("*")) == before


def test_binary_is_read_on_request(capsys: Capsys) -> None:
    Path("data.bin").write_bytes(bytes(range(256)) * 20)
    assert linnet(capsys, "train", "text", "data.bin", *SMALL_TEXT, "--allow-binary").status == 0


def test_a_refused_command_leaves_a_folder_as_it_was(capsys: Capsys, book: Path) -> None:
    Path("mine").mkdir()
    Path("mine/note.txt").write_text("keep")
    bad = ("--tokenizer", "bpe", "--vocab-size", "300", "--seq-len", "100000")
    refused(capsys, "train", "text", book, *TINY, *bad, "--out", "mine")
    assert [path.name for path in Path("mine").rglob("*")] == ["note.txt"]
    refused(capsys, "train", "text", book, *TINY, *bad, "--out", "mine/deep/er")
    assert [path.name for path in Path("mine").rglob("*")] == ["note.txt"]


@pytest.mark.parametrize("out", ["note.txt", "note.txt/run"])
def test_out_that_is_a_file(capsys: Capsys, book: Path, out: str) -> None:
    Path("note.txt").write_text("keep")
    assert "note.txt is a file" in refused(capsys, "train", "text", book, *SMALL_TEXT, "--out", out)
    assert Path("note.txt").read_text() == "keep"


def test_a_folder_is_not_a_text(capsys: Capsys, tmp_path: Path) -> None:
    assert "is a folder" in refused(capsys, "train", "text", tmp_path, *SMALL_TEXT)


@pytest.mark.parametrize(
    ("kind", "name", "named"),
    [
        ("image", "digitz", "did you mean 'digits'"),
        ("speech", "an5", "did you mean 'an4'"),
        ("stream", "etth2", "did you mean 'etth1'"),
        ("stream", "none.csv", "no such file"),
    ],
)
def test_an_unknown_set_suggests_the_nearest(capsys: Capsys, kind: str, name: str, named: str) -> None:
    assert named in refused(capsys, "train", kind, name, *TINY)
    assert not Path("runs").exists()


def test_a_recording_at_another_rate(capsys: Capsys) -> None:
    write_speech(Path("wavs"), odd_rate=11025)
    sentence = refused(capsys, "train", "speech", "wavs", *TINY)
    assert re.search(r"take10.wav is at 11025 Hz, and 8000 Hz is required; .*--resample", sentence)
    assert not Path("runs").exists()
    assert linnet(capsys, "train", "speech", "wavs", *TINY, "--resample").status == 0


def test_options_that_a_set_of_speech_does_not_have(capsys: Capsys) -> None:
    assert "--stacked" in refused(capsys, "train", "speech", "generated", "--stacked", "2", *TINY)
    write_speech(Path("wavs"))
    sentence = refused(capsys, "train", "speech", "wavs", "--targets", "phones", *TINY)
    assert "--targets is not an option of wavs speech; accepted: --stacked, --with-deltas, --resample" in sentence


@pytest.mark.parametrize("way", ["forward", "drop"])
def test_missing_values(capsys: Capsys, way: str) -> None:
    write_csv(Path("load.csv"), gap=True)
    sentence = refused(capsys, "train", "stream", "load.csv", *SMALL_STREAM)
    assert "data row 18, column 'wind'" in sentence
    assert f"--missing {way}" in sentence
    assert not Path("runs").exists()
    assert linnet(capsys, "train", "stream", "load.csv", *SMALL_STREAM, "--missing", way).status == 0


def test_a_column_that_does_not_exist(capsys: Capsys) -> None:
    write_csv(Path("load.csv"))
    assert "did you mean 'wind'" in refused(capsys, "train", "stream", "load.csv", *SMALL_STREAM, "--targets", "wnd")


@pytest.mark.parametrize(("option", "named"), [("--d-modl", "--d-model"), ("--stepz", "--steps")])
def test_an_unknown_option_suggests_the_nearest(capsys: Capsys, option: str, named: str) -> None:
    done = linnet(capsys, "train", "text", option, "3")
    assert (done.status, done.out) == (2, "")
    assert f"Did you mean {named}?" in done.err


def damage_half(folder: Path) -> str:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "model.safetensors has"


def damage_shape(folder: Path) -> str:
    """A tensor of another shape in a checkpoint that is otherwise as it should be, sums included."""
    loaded = checkpoint.read(folder)
    loaded.model["embed.weight"] = loaded.model["embed.weight"][:-1].contiguous()

    def write(to: Path) -> None:
        save_file(loaded.model, to / "model.safetensors")
        (to / "config.json").write_text(json.dumps(loaded.config))

    checkpoint.save(folder.parent.parent, loaded.trainer, write, loaded.optimizer)
    return "'embed.weight' has shape [255, 16]"


@pytest.mark.parametrize("damage", [damage_half, damage_shape])
@pytest.mark.parametrize("command", [("train", "resume", "a"), ("eval", "a")])
def test_a_damaged_checkpoint(
    capsys: Capsys, book: Path, damage: Callable[[Path], str], command: tuple[str, ...]
) -> None:
    linnet(capsys, "train", "text", book, *SMALL_TEXT, "--save-every", "2", "--out", "a")
    good = weights(Path("a"))
    named = damage(Path("a/checkpoints/step-00000004"))
    before = {path: path.read_bytes() for path in Path("a").rglob("*") if path.is_file()}
    sentence = refused(capsys, *command)
    assert named in sentence
    assert before == {path: path.read_bytes() for path in Path("a").rglob("*") if path.is_file()}
    if damage is damage_half:  # the way out is a command that works
        way = re.search(r"linnet (train resume a --checkpoint \S+)|(--checkpoint \S+)", sentence)
        assert way is not None, sentence
        assert linnet(capsys, *(way[1].split() if way[1] else [*command, *way[2].split()])).status == 0
        if command[0] == "train":
            assert all(torch.equal(x, good[name]) for name, x in weights(Path("a")).items())


def test_a_folder_without_a_run(capsys: Capsys, tmp_path: Path) -> None:
    for command in (("train", "resume"), ("eval",)):
        assert "run.json does not exist" in refused(capsys, *command, tmp_path)
    Path("run.json").write_text('{"kind": "text"')
    assert "start the run again" in refused(capsys, "train", "resume", tmp_path)


def test_a_run_that_diverges_keeps_the_last_good_checkpoint(capsys: Capsys, book: Path) -> None:
    options = ("--lr", "1e6", "--save-every", "1", "--steps", "20")
    done = linnet(capsys, "train", "text", book, *SMALL_TEXT, *options)
    assert (done.status, done.out) == (2, "")
    sentence = done.err.splitlines()[-1]
    assert re.match(r"linnet: .* at step \d+, and it began in layer 'backbone\.", sentence), sentence
    kept = re.search(r"the last good checkpoint is (step-\d+)", sentence)
    assert kept is not None, sentence
    assert Path("runs/text/latest").read_text().strip() == f"checkpoints/{kept[1]}"
    assert all(bool(x.isfinite().all()) for x in weights(Path("runs/text")).values())
