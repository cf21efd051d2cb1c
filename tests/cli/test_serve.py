"""`linnet serve`: what it refuses before it listens, and what it prints."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.cli.main import main
from linnet.serve import start

DEFAULTS = ("--store", "memory", "--port", "0")


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(
            ["serve", *argv, *(() if "--store" in argv else DEFAULTS[:2]), *(() if "--port" in argv else DEFAULTS[2:])]
        )
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--host", "0.0.0.0"], "pass --api-keys FILE, or --no-auth"),
        (["--port", "70000"], "--port is 70000"),
        (["--rows", "0"], "--rows is 0"),
        (["--idle-days", "0"], "--idle-days is 0"),
        (["--store", "mysql:x"], "accepted: sqlite:PATH"),
        (["--api-keys", "nothing.txt"], "nothing.txt"),
        (["nowhere"], "nowhere"),
        (["--weights", "int3"], "int3"),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    error = refused(capsys, *argv)
    assert words in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        assert "choose another --port" in refused(capsys, "--port", str(bound.getsockname()[1]))


def test_the_summary_states_the_bound() -> None:
    service, text = start.build(start.Options(limits=start.Limits(rows=4, prefix_bytes=1 << 20)))
    service.worker.store.close()
    assert "4,864 bytes a session, of any length" in text
    assert "at most 1.0 MiB of states: 4 running requests and 1.0 MiB of prefix states" in text
    assert "model linnet-moby-dick, 104,256 parameters" in text


def test_a_key_is_hashed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.cli.serve.getpass", lambda _: "one")
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--hash-key"])
    assert capsys.readouterr().out == "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n"


@pytest.mark.slow
def test_loading_a_model_does_not_import_the_compiler() -> None:
    import subprocess
    import sys

    code = "import linnet, sys; from linnet.serve.start import SHIPPED; linnet.load(SHIPPED)\n"
    code += "print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_default_store_is_a_file_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    service, text = start.build(start.Options(store=None, name="a/b ü"))
    service.worker.store.close()
    (file,) = (tmp_path / "linnet").glob("*.db")
    assert file.name == f"a_b__-{service.worker.model.fingerprint()}.db"
    assert str(file) in text
