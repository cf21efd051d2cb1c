"""What any command promises: a refusal is one sentence and leaves nothing behind; no encoding or full disk is raw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.cli.main import sentence
from linnet.data import image_set
from linnet.data.files import read_text
from linnet.models import build, preset
from tests.cli.command import TINY, linnet, refused
from tests.full_disk import largest_file

Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("elsewhere")

REFUSED = {
    "recall rates": ("recall", "--quick", "--rates", "-1"),
    "recall rates inf": ("recall", "--quick", "--rates", "inf"),
    "recall steps": ("recall", "--quick", "--steps", "0"),
    "recall workers": ("recall", "--quick", "--workers", "0"),
    "recall mixer": ("recall", "--mixers", "sofmax"),
    "recall pairs": ("recall", "--quick", "--pairs", "60"),
    "recall text rates": ("recall", "text", "--text", "shipped", "--budget", "smoke", "--rates", "-1"),
    "recall text steps": ("recall", "text", "--text", "shipped", "--budget", "smoke", "--steps", "0"),
    "recall text file": ("recall", "text", "--text", "none.txt"),
    "recall study workers": ("recall", "study", "iou", "--workers", "none"),
    "recall study budget": ("recall", "study", "iou", "--budget", "none"),
    "icl table noise": ("icl", "table", "--noise", "U-5"),
    "icl table layers": ("icl", "table", "--layers", "0-9"),
    "icl table sequences": ("icl", "table", "--quick", "--sequences", "0"),
    "icl table workers": ("icl", "table", "--quick", "--workers", "-3"),
    "icl train": ("icl", "train", "--layers", "0", "--out", "m.safetensors"),
    "reproduce": ("reproduce", "no-such-claim"),
    "reproduce workers": ("reproduce", "forms", "--workers", "0"),
    "import": ("import", "none.bin", "--out", "deep/er/model"),
    "train steps": ("train", "text", *TINY, "--seq-len", "32", "--steps", "0"),
    "train lr": ("train", "text", *TINY, "--seq-len", "32", "--lr", "-1"),
    "train batch": ("train", "stream", *TINY, "--context", "100000"),
}
IGNORED = {
    "--head": ("text", "--head", "mixture"),
    "--head of a stream": ("stream", "--head", "categorical"),
    "--vocab-size": ("text", "--vocab-size", "300"),
    "--allow-binary": ("text", "--tokenizer", "bpe", "--allow-binary"),
    "--plateau-factor": ("image", "--plateau-factor", "0.3"),
    "--min-lr": ("text", "--min-lr", "1e-5"),
    "--strategy": ("text", "--strategy", "fsdp"),
    "--columns": ("stream", "--columns", "value"),
    "--n-heads": ("speech", "--mixer", "bilstm", "--n-heads", "4"),
}


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_command_leaves_nothing_behind(capsys: Capsys, command: tuple[str, ...]) -> None:
    done = linnet(capsys, *command)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", IGNORED)
def test_an_option_that_would_be_ignored_is_refused(capsys: Capsys, name: str) -> None:
    said = refused(capsys, "train", *IGNORED[name], *TINY)
    assert f"linnet: {name.split(' ')[0]} is " in said
    assert "it is for " in said
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_model_on_a_full_disk(size: int) -> None:
    model = build(preset("char-small", d_model=32, n_layers=1, n_heads=2, vocab_size=40))
    with largest_file(size), pytest.raises(OSError, match=r"cannot be written \(.*\); .*name another place"):
        model.save_pretrained("out")
    assert list(Path().iterdir()) == []


def test_other_writers_on_a_full_disk(capsys: Capsys) -> None:
    with largest_file(100):
        done = linnet(capsys, "icl", "train", "--layers", "1", "--sequences", "100", "--out", "m.safetensors")
    assert done.status == 2
    assert done.err.splitlines()[-1].startswith("linnet: m.safetensors cannot be written (")
    assert list(Path().iterdir()) == []


def test_errors_of_the_system_are_sentences() -> None:
    assert sentence(OSError(28, "No space left on device", "a/b")) == (
        "a/b: no space left on device; make room, or name another place"
    )
    assert "standard output: no space left" in sentence(OSError(28, "No space left on device"))
    assert "change its permissions" in sentence(PermissionError(13, "Permission denied", "a"))
    assert "byte 1 is 0xff" in sentence(UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte"))
    assert sentence(OSError("a sentence of ours")) == "a sentence of ours"


def test_a_small_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfgood")
    assert read_text(tmp_path / "a") == "good"
    (tmp_path / "a").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a is not UTF-8: byte 3 is 0xe9 .*; convert it"):
        read_text(tmp_path / "a")


def test_only_test_images(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + b"\0\0\0\x01" * 3 + b"\0")
    named = r"has no train images, only t10k-images-idx3-ubyte; add train-images\*, or name .* itself to train on those"
    with pytest.raises(ValueError, match=named):
        image_set(tmp_path, "train")
    (tmp_path / "pngs/test/cat").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"has a folder test and no folder train; put the images .*/train, or name"):
        image_set(tmp_path / "pngs", "train")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}


def test_a_terminal_without_unicode() -> None:
    """`icl explain --example` writes an omega; every command goes through the same `main`."""
    command = [sys.executable, "-m", "linnet", "icl", "explain", "--example"]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"?_xx Sigma" in done.stdout
    assert b"The model answers" in done.stdout.splitlines()[-1]
