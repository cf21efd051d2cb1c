"""`linnet`: help without torch, the version, and one sentence with status 2 for a user's mistake."""

from __future__ import annotations

import subprocess
import sys

import pytest

import linnet
from linnet.cli import main as cli
from linnet.errors import ArgumentError, Option, OptionError


def linnet_command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "linnet.cli.main", *args], capture_output=True, text=True, check=False)


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(args)
    return int(caught.value.code or 0)


@pytest.mark.parametrize("args", [["--help"], [], ["--version"]])
def test_help_and_version_do_not_import_torch(args: list[str]) -> None:
    check_no_torch(args)


def check_no_torch(args: list[str]) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('TORCH' if 'torch' in sys.modules else 'LIGHT'))\n"
        f"from linnet.cli.main import main; main({args})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("LIGHT")


def test_help_teaches() -> None:
    text = linnet_command("--help").stdout
    for expected in ("linnet doctor", "linnet bench ops --quick", "Show what is installed"):
        assert expected in text


def test_version_is_the_package_version() -> None:
    assert linnet_command("--version").stdout.strip() == linnet.__version__


@pytest.mark.parametrize("args", [["doctr"], ["doctor", "--jsn"]])
def test_a_mistyped_command_is_refused_with_status_2(args: list[str]) -> None:
    check_mistyped(args)


def check_mistyped(args: list[str]) -> None:
    done = linnet_command(*args)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    assert args[-1].lstrip("-") in done.stdout + done.stderr


@pytest.mark.parametrize(
    "error",
    [
        ValueError("chunk_size (0) must be at least 1"),
        linnet.StateError("the state is of another model"),
        linnet.BackendError("native cannot run float16"),
        FileNotFoundError("no file named rows.jsonl"),
    ],
)
def test_a_user_error_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("linnet.cli.doctor.facts", fail)
    monkeypatch.delenv("LINNET_DEBUG", raising=False)
    assert status("doctor") == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"linnet: {error}\n")
    monkeypatch.setenv("LINNET_DEBUG", "1")
    with pytest.raises(type(error)):
        cli.main(["doctor"])


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("linnet.cli.doctor.facts", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["doctor"])


def test_a_reader_that_leaves_is_not_an_error() -> None:
    command = [sys.executable, "-u", "-m", "linnet.cli.main", "doctor", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_an_argument_is_named_as_the_flag_of_the_command_that_has_it() -> None:
    error = ArgumentError("batch_size", 0, "1 or more", "try 16")
    assert cli.sentence(error, {"--batch-size"}) == "--batch-size is 0; accepted: 1 or more; try 16"
    assert cli.sentence(error, {"--batch"}) == "batch_size is 0; accepted: 1 or more; try 16"
    option = OptionError("a is at 8 Hz", Option("resample", True, "convert it"), Option("to_rate", "8", "keep it"))
    assert cli.sentence(option, {"--resample", "--to-rate"}).endswith(
        "pass --resample to convert it, --to-rate 8 to keep it"
    )
    assert cli.sentence(option, {"--resample"}) == str(option)
