"""Every command that reads a model verifies it: flipped weights, a pointer out of the folder, the best checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from linnet.checksum import crc32_of_json
from tests.cli.command import linnet, refused, train_runs, write_npz, write_text

Capsys = pytest.CaptureFixture[str]
STEP = "checkpoints/step-00000004"
COMMANDS = {
    "generate text": ("generate", "text", "text", "--prompt", "the", "--tokens", "3"),
    "generate image": ("generate", "image", "image", "--count", "1", "--shape", "4", "4"),
    "eval": ("eval", "text"),
    "eval image": ("eval", "image"),
    "eval --weights": ("eval", "text", "--weights", "int8"),
    "eval --text": ("eval", f"text/{STEP}", "--text", "book.txt"),
    "train resume": ("train", "resume", "text", "--steps", "5"),
    "train --resume": ("train", "resume", "image", "--steps", "5"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    book, images = write_text(folder / "book.txt"), write_npz(folder / "images.npz")
    text = ("text", str(book), "--seq-len", "32", "--eval-every", "2")
    return train_runs(folder, {"text": text, "image": ("image", str(images), "--eval-every", "2")})


@pytest.fixture
def copies(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_flipped_weights_are_refused(capsys: Capsys, copies: Path, command: tuple[str, ...]) -> None:
    for path in copies.glob("*/checkpoints/*/model.safetensors"):
        data = bytearray(path.read_bytes())
        data[-3] ^= 0x40
        path.write_bytes(data)
    sentence = refused(capsys, *command)
    assert "model.safetensors is damaged: its crc32 is" in sentence


@pytest.mark.parametrize("command", ["generate text", "generate image", "eval", "train resume"])
def test_latest_may_not_lead_out_of_the_folder(capsys: Capsys, copies: Path, command: str) -> None:
    for name in ("text", "image"):
        shutil.copytree(copies / name / STEP, copies / f"other {name}")
        (copies / name / "latest").write_text(f"../other {name}\n")
    assert "accepted: a name such as checkpoints/step-00001000" in refused(capsys, *COMMANDS[command])


def test_the_best_checkpoint_is_used_and_named(capsys: Capsys, copies: Path) -> None:
    """The newest says that the one before it was better."""
    path = Path("text", STEP, "trainer.json")
    content = {name: value for name, value in json.loads(path.read_text()).items() if name != "crc32"}
    content["progress"]["best_step"] = 2
    path.write_text(json.dumps(content | {"crc32": crc32_of_json(content)}))
    old = Path("text/checkpoints/step-00000002/trainer.json")
    assert json.loads(old.read_text())["progress"]["best_step"] == 2
    assert linnet(capsys, "eval", "text").out.startswith("step 2 (the best checkpoint by held-out loss), ")
    assert linnet(capsys, "eval", "text", "--checkpoint", "newest").out.startswith("step 4, ")
    assert json.loads(linnet(capsys, "eval", "text", "--checkpoint", "2", "--json").out)["step"] == 2
    generate = COMMANDS["generate text"]
    note = "using step-00000002, the best by held-out loss; --checkpoint newest takes step-00000004\n"
    best, newest = (linnet(capsys, *generate, *more) for more in ((), ("--checkpoint", "newest")))
    assert best.err.startswith(note)
    assert note not in newest.err
    assert note not in linnet(capsys, *generate, "--quiet").err
