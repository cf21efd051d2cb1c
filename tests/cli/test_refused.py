"""What any command promises: a refusal is one sentence and leaves nothing behind; no encoding or full disk is raw."""

from __future__ import annotations

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
    "import": ("import", "none.bin", "--out", "deep/er/model"),
    "train steps": ("train", "text", *TINY, "--seq-len", "32", "--steps", "0"),
    "train lr": ("train", "text", *TINY, "--seq-len", "32", "--lr", "-1"),
    "train batch": ("train", "stream", *TINY, "--context", "100000"),
}
IGNORE = {
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
    check_nothing_left(capsys, command)


def check_nothing_left(capsys: Capsys, command: tuple[str, ...]) -> None:
    done = linnet(capsys, *command)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", IGNORE)
def test_an_option_that_would_be_ignored_is_refused(capsys: Capsys, name: str) -> None:
    message = refused(capsys, "train", *IGNORE[name], *TINY)
    assert f"linnet: {name.split(' ')[0]} is " in message
    assert "it is for " in message
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_model_on_a_full_disk(size: int) -> None:
    model = build(preset("char-small", d_model=32, n_layers=1, n_heads=2, vocab_size=40))
    with largest_file(size), pytest.raises(OSError, match=r"cannot be written \(.*\); .*choose another path"):
        model.save_pretrained("out")
    assert list(Path().iterdir()) == []


def test_errors_of_the_system_are_sentences() -> None:
    assert sentence(OSError(28, "No space left on device", "a/b")) == (
        "a/b: no space left on device; free some space, or choose another path"
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
    with pytest.raises(ValueError, match=r"has a folder test and no folder train; put the training images .*, or name"):
        image_set(tmp_path / "pngs", "train")
