"""Hours in minutes: many sessions at once against a real server, whose memory must not grow.

    python -m tests.serve.soak --sessions 1000 --minutes 10

Each client creates a session, generates, rolls back, forks, goes away in the middle of a stream, deletes, and begins
again. Reported every ten seconds: tokens and requests so far, failures, resident memory. The exit status is 1 if a
request failed, or if memory after the first third grew by more than a tenth and 16 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

PAGE = os.sysconf("SC_PAGE_SIZE")
REFUSALS = (409, 429)


class Clients:
    """All clients of one run, and what happened to them."""

    def __init__(self, port: int, end: float) -> None:
        self.port, self.end = port, end
        self.requests = self.refused = 0
        self.failures: list[str] = []

    async def send(self, method: str, path: str, body: object = None, read: int = -1) -> tuple[int, bytes]:
        """Return status and body; with `read`, only so many bytes of it, before going away."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
            line = await reader.readline()
            status = int(line.split()[1]) if line else 0
            text = await reader.read(read)
            while read < 0 and (more := await reader.read()):
                text += more
        finally:
            writer.close()
        self.requests += 1
        if status in REFUSALS:
            self.refused += 1
        elif not 200 <= status < 300:
            self.failures.append(f"{method} {path}: {status} {text[-200:]!r}")
        return status, text.partition(b"\r\n\r\n")[2]

    async def client(self, seed: int) -> None:
        rng = random.Random(seed)
        while monotonic() < self.end:
            try:
                await self.life(rng)
            except (OSError, ValueError, KeyError) as error:
                self.failures.append(repr(error))
                await asyncio.sleep(1)

    async def life(self, rng: random.Random) -> None:
        status, text = await self.send("POST", "/v1/sessions", {"text": "Call me " * rng.randint(1, 40)})
        if status != 201:
            await asyncio.sleep(1)
            return
        ids = [json.loads(_dechunked(text))["id"]]
        for _ in range(rng.randint(1, 5)):
            path = f"/v1/sessions/{rng.choice(ids)}"
            kind = rng.randrange(5)
            if kind == 0:
                await self.send("POST", f"{path}/rollback", {"tokens": 3})
            elif kind == 1:
                status, text = await self.send("POST", f"{path}/fork", {})
                if status == 201:
                    ids.append(json.loads(_dechunked(text))["data"][0]["id"])
            elif kind == 2:
                await self.send("POST", f"{path}/generate", {"max_tokens": 200, "stream": True}, read=500)
                await asyncio.sleep(0.05)
            else:
                await self.send("POST", f"{path}/generate", {"max_tokens": 30})
            await asyncio.sleep(rng.random())
        for id in ids:
            await self.send("DELETE", f"/v1/sessions/{id}")


def _dechunked(text: bytes) -> bytes:
    start, end = text.find(b"{"), text.rfind(b"}")
    return text[start : end + 1]


async def run(port: int, pid: int, sessions: int, minutes: float) -> int:
    """Run the clients and watch the memory; return the exit status."""
    begin = monotonic()
    clients = Clients(port, begin + 60 * minutes)
    tasks = [asyncio.ensure_future(clients.client(seed)) for seed in range(sessions)]
    memory: list[int] = []
    while monotonic() < clients.end:
        await asyncio.sleep(min(10.0, max(0.1, clients.end - monotonic())))
        memory.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE)
        print(
            f"{monotonic() - begin:6.0f} s  {clients.requests:8,} requests  {clients.refused:6,} refused  "
            f"{len(clients.failures)} failures  {memory[-1] / 2**20:8.1f} MiB",
            flush=True,
        )
    await asyncio.gather(*tasks)
    for failure in clients.failures[:5]:
        print(failure)
    first, last = max(memory[: len(memory) // 3 + 1]), memory[-1]
    grown = last > 1.1 * first + 2**24
    print(f"memory {'grew' if grown else 'is flat'}: {first / 2**20:.1f} MiB, then {last / 2**20:.1f} MiB")
    return int(grown or bool(clients.failures))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "linnet", "serve", "--port", "0", "--store", f"sqlite:{folder}/sessions.db"]
        command += ["--queued", "4096", "--prefix-mib", "16"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout is not None
                port = re.search(r"http://127\.0\.0\.1:(\d+)", server.stdout.readline())
                assert port is not None
                return asyncio.run(run(int(port[1]), server.pid, options.sessions, options.minutes))
            finally:
                server.kill()


if __name__ == "__main__":
    sys.exit(main())
