"""The documentation runs: each ```python block, each ```sh block of linnet commands, and each link between files.

The blocks of one file run in order in one namespace, in a Python of their own, with the network closed. A block that
cannot run here is preceded by `<!-- not run: reason -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUN = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
ALL = sorted({*RUN, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})

BLOCK = re.compile(r"(?P<skip><!-- not run: .+? -->\s*\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
OFFLINE = """
import socket
def closed(*args, **kwargs):
    raise OSError("documentation must run offline")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = closed
"""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return [m["code"] for m in BLOCK.finditer(text) if m["language"] == language and not m["skip"]]


def commands(text: str) -> list[str]:
    """The lines of each sh block whose first line is a linnet command."""
    found = [block.splitlines() for block in blocks(text, "sh") if block.startswith("linnet ")]
    return [line for lines in found for line in lines if line.strip()]


def run(command: list[str], cwd: Path) -> None:
    keep = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **keep}, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def script(path: Path) -> str:
    """The python blocks of a file, each compiled under its own line numbers so that a traceback points into it."""
    text = path.read_text(encoding="utf-8")
    lines = [OFFLINE, "space = {'__name__': '__main__'}"]
    for match in BLOCK.finditer(text):
        if match["language"] == "python" and not match["skip"]:
            padded = "\n" * text[: match.start("code")].count("\n") + match["code"]
            lines.append(f"exec(compile({padded!r}, {name(path)!r}, 'exec'), space)")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("path", RUN, ids=name)
def test_python_blocks_run(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "blocks.py"
    file.write_text(script(path), encoding="utf-8")
    run([sys.executable, "-W", "error::DeprecationWarning:__main__", str(file)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "command"), [(p, c) for p in RUN for c in commands(p.read_text(encoding="utf-8"))], ids=str
)
def test_commands_run(path: Path, command: str, tmp_path: Path) -> None:
    words = shlex.split(command, comments=True)
    run([sys.executable, "-m", "linnet.cli.main", *words[1:]], tmp_path)


@pytest.mark.parametrize("path", ALL, ids=name)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{name(path)} links to {target}"


def test_readme_has_blocks_that_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert blocks(text, "python")
    assert "linnet doctor" in commands(text)


def test_blocks_are_found_and_skipped() -> None:
    text = (
        "```python\na = 1\n```\n\n<!-- not run: needs a GPU -->\n```python\nb = 2\n```\n\n```sh\nlinnet doctor\n```\n"
    )
    assert blocks(text, "python") == ["a = 1\n"]
    assert commands(text) == ["linnet doctor"]
