"""What every command keeps to, for those of the laboratory: help, refusals, one writer to a folder, a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import linnet, refused
from tests.cli.test_main import check_mistyped, check_no_torch, linnet_command
from tests.cli.test_refused import check_nothing_left
from tests.full_disk import largest_file
from tests.holder import files, held

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
}
WRITERS = {
    "recall": ("recall", "--quick", "--workers", "1", "--out"),
    "recall text": ("recall", "text", "--budget", "smoke", "--text", "shipped", "--workers", "1", "--out"),
    "recall study": ("recall", "study", "iou", "--budget", "smoke", "--workers", "1", "--out"),
    "icl table": ("icl", "table", "--quick", "--workers", "1", "--out"),
    "reproduce": ("reproduce", "forms", "--budget", "smoke", "--workers", "1", "--out"),
}


def test_help_does_not_import_torch() -> None:
    check_no_torch(["bench", "--help"])


def test_help_has_a_group_for_the_laboratory() -> None:
    text = linnet_command("--help").stdout
    assert text.index("Everyday commands") < text.index("Laboratory") < text.index("Time linnet on this machine")


def test_a_mistyped_command_is_refused_with_status_2() -> None:
    check_mistyped(["bench", "op"])


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_command_leaves_nothing_behind(capsys: Capsys, command: tuple[str, ...]) -> None:
    check_nothing_left(capsys, command)


@pytest.mark.parametrize("command", WRITERS.values(), ids=WRITERS.keys())
def test_a_folder_in_use(capsys: Capsys, command: tuple[str, ...]) -> None:
    out = Path("out")
    with held(out) as process:
        before = files(out)
        assert f"out is in use by process {process.pid}" in refused(capsys, *command, out)
        assert files(out) == before


def test_other_writers_on_a_full_disk(capsys: Capsys) -> None:
    words = "icl train --layers 1 --d 2 --n 4 --sequences 100 --out m.safetensors".split()
    with largest_file(100):
        done = linnet(capsys, *words)
    assert done.status == 2
    assert done.err.splitlines()[-1].startswith("linnet: m.safetensors cannot be written (")
    assert list(Path().iterdir()) == []


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}


def test_a_terminal_without_unicode() -> None:
    """`icl explain --example` writes an omega; every command goes through the same `main`."""
    command = [sys.executable, "-m", "linnet", "icl", "explain", "--example"]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"?_xx Sigma" in done.stdout
    assert b"The model predicts" in done.stdout.splitlines()[-1]
