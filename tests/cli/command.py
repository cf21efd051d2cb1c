"""The command line in this process (starting Python with torch costs seconds), and small data of every kind for it."""

from __future__ import annotations

import math
import random
import struct
import subprocess
import sys
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from linnet.cli import main

SHAPE = ("--d-model", "16", "--n-heads", "2", "--n-layers", "1", "--threads", "1", "--autocast", "none")
TINY = (*SHAPE, "--steps", "4", "--batch-size", "4", "--eval-rows", "4", "--schedule", "constant", "--warmup", "0")
WORDS = "the whale swam past the white ship and the captain wrote of it in his book".split()


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def linnet(capsys: pytest.CaptureFixture[str], *args: object) -> Done:
    """`linnet ARGS`; of an option that is given twice, as after TINY, the last counts."""
    capsys.readouterr()
    try:
        main.main(last_of_each([str(arg) for arg in args]))
        status = 0
    except SystemExit as left:
        status = int(left.code or 0)
    return Done(status, *capsys.readouterr())


def last_of_each(args: list[str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    flag = ""
    for arg in args:
        if arg.startswith("--"):
            flag = arg
            groups.pop(flag, None)
        groups.setdefault(flag, []).append(arg)
    return [arg for group in groups.values() for arg in group]


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one sentence of a command that is refused."""
    done = linnet(capsys, *args)
    assert done.status == 2, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("linnet: ")
    return lines[0]


def train_runs(folder: Path, runs: dict[str, tuple[str, ...]]) -> Path:
    """Tiny runs by name in a folder; a run is what follows `linnet train`."""
    for name, args in runs.items():
        with pytest.raises(SystemExit) as left:
            main.main(["train", *args, *TINY, "--save-every", "2", "--out", str(folder / name)])
        assert not left.value.code
    return folder


def weights(out: Path) -> dict[str, torch.Tensor]:
    """The weights of a run's newest checkpoint, copied: a test may damage the file."""
    tensors = load_file(out / (out / "latest").read_text().strip() / "model.safetensors")
    return {name: x.clone() for name, x in tensors.items()}


def help_without_torch(*command: str) -> str:
    """What `linnet COMMAND --help` prints in a new process, which must not import torch."""
    code = "import atexit, sys\natexit.register(lambda: print('torch' in sys.modules))\n"
    code += f"from linnet.cli.main import main; main([*{command!r}, '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("False")
    return done.stdout


def write_text(path: Path, words: int = 1200) -> Path:
    draw = random.Random(0)
    path.write_text(" ".join(draw.choice(WORDS) for _ in range(words)) + "\n", encoding="utf-8")
    return path


def write_csv(path: Path, rows: int = 400, gap: bool = False) -> Path:
    lines = ["hour,load,wind"]
    for t in range(rows):
        wind = "" if gap and t == 17 else f"{math.cos(t / 7):.4f}"
        lines.append(f"2024-01-01 {t % 24:02}:00,{math.sin(t / 4):.4f},{wind}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_npz(path: Path) -> Path:
    draw = np.random.default_rng(0)
    np.savez(path, images=draw.integers(0, 256, (20, 4, 4), dtype=np.uint8), labels=draw.integers(0, 3, 20))
    return path


def write_pngs(folder: Path) -> Path:
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(draw.integers(0, 256, (3, 4), dtype=np.uint8)).save(folder / label / f"{i}.png")
    return folder


def write_speech(folder: Path, odd_rate: int = 8000) -> Path:
    """Twelve recordings of a tone, a third of a second each; the last but one at another rate on request."""
    folder.mkdir()
    lines = []
    for i in range(12):
        rate = odd_rate if i == 10 else 8000
        tone = [round(8000 * math.sin(2 * math.pi * (200 + 50 * i) * t / rate)) for t in range(rate // 3)]
        with wave.open(str(folder / f"take{i:02}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(struct.pack(f"<{len(tone)}h", *tone))
        lines.append(f"take{i:02}.wav\t{'ab' if i % 2 else 'ba c'}")
    (folder / "transcripts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
