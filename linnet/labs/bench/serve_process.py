"""Server processes on loopback for `linnet bench serve`: start, wait until ready, resident memory, stop.

with running(linnet_command(folder, ...)) as server: server.port, server.rss(), server.kill()
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

START = 60.0  # seconds after which a server that does not answer is given up
LOOPBACK = "127.0.0.1"


@dataclass
class Server:
    """A server process; `command` has a place {port}."""

    command: Sequence[str]
    health: str = "/health"
    port: int = 0
    seconds: float = 0.0  # from the start of the process to the first answer
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(suffix=".log")[1]))

    def start(self) -> None:
        """Start the process and wait for its first answer; raise RuntimeError with the end of its log if it fails."""
        self.port = self.port or free_port()
        command = [part.replace("{port}", str(self.port)) for part in self.command]
        began = monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not self.answers():
            if self.process.poll() is not None or monotonic() - began > START:
                self.kill()
                raise RuntimeError(f"{Path(command[0]).name} did not start: {self.tail()}")
            sleep(0.02)
        self.seconds = monotonic() - began

    def answers(self) -> bool:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            connection.request("GET", self.health)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " ".join(lines[-3:])[-300:] or "it wrote nothing"

    def rss(self) -> int | None:
        """Return resident bytes; None where the system does not tell."""
        with suppress(OSError, ValueError, StopIteration):
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])
        return None

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running(command: Sequence[str], health: str = "/health") -> Iterator[Server]:
    """Run a server for the block."""
    server = Server(command, health)
    try:
        server.start()
        yield server
    finally:
        if hasattr(server, "process"):
            server.kill()
        server.log.unlink(missing_ok=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def linnet_command(folder: Path | None, *options: str) -> list[str]:
    """Return the command of our server; without a folder, of the model that the package ships."""
    model = [] if folder is None else [str(folder)]
    return [sys.executable, "-m", "linnet", "serve", *model, "--host", LOOPBACK, "--port", "{port}", *options]


def llama_command(program: str, model: Path, streams: int, context: int, threads: int) -> list[str]:
    """Return the command of llama.cpp's server with a cache for `streams` sequences of `context` tokens."""
    sizes = ["--parallel", str(streams), "--ctx-size", str(streams * context), "--threads", str(threads)]
    fixed = ["--no-webui", "--log-disable", "--cache-ram", "0"]
    return [program, "--model", str(model), "--host", LOOPBACK, "--port", "{port}", *sizes, *fixed]


def llama_python_command(python: str, model: Path, context: int, threads: int) -> list[str]:
    """Return the command of llama-cpp-python's server, which runs one request at a time."""
    sizes = ["--n_ctx", str(context), "--n_threads", str(threads), "--n_threads_batch", str(threads)]
    fixed = ["--interrupt_requests", "false", "--verbose", "false"]
    return [
        python,
        "-m",
        "llama_cpp.server",
        "--model",
        str(model),
        "--host",
        LOOPBACK,
        "--port",
        "{port}",
        *sizes,
        *fixed,
    ]


def available_bytes() -> int:
    """Return the memory that programs may still take."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
