"""A process of its own that holds a folder's lock, as any other linnet command would; it imports no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CODE = """
import sys
from linnet.lock import exclusive
with exclusive(sys.argv[1]):
    print("holding", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The folder is locked inside; the process may be killed there."""
    command = [sys.executable, "-c", CODE, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "holding\n"
            yield process
        finally:
            process.kill()


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by name; None for folders."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}
