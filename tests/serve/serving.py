"""A real server in this process, on a free port of this machine, with the shipped model."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import uvicorn

from linnet.serve.app import build_app
from linnet.serve.limits import Limits
from linnet.serve.service import Service
from linnet.serve.start import Options, build


@dataclass
class Server:
    """Where it listens, and what serves there."""

    port: int
    service: Service
    key: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> HTTPResponse:
        """Send a request on a connection of its own."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"Connection": "close"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        connection.request(method, path, data, given | (headers or {}))
        return connection.getresponse()

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Return the status and the JSON of the answer."""
        with self.open(method, path, body, headers) as response:
            text = response.read()
        return response.status, json.loads(text) if text else None

    def post(self, path: str, body: Any = None, status: int | None = None) -> Any:
        """Return the JSON of a POST that succeeds, or fails with this status."""
        got, value = self.send("POST", path, {} if body is None else body)
        assert got == (status or got) and (status or got < 300), value  # noqa: PT018
        return value

    def get(self, path: str, status: int = 200) -> Any:
        got, value = self.send("GET", path)
        assert got == status, value
        return value

    def metric(self, name: str) -> float:
        """Return a metric without labels."""
        with self.open("GET", "/metrics") as response:
            lines = response.read().decode().splitlines()
        (value,) = [float(line.split()[1]) for line in lines if line.split()[0] == name]
        return value


@contextmanager
def serving(options: Options | None = None, key: str = "", *, dies: bool = False, **limits: Any) -> Iterator[Server]:
    """Run a server for the block; its worker does not fail, unless the test kills it."""
    options = options or Options(limits=Limits(**({"stop_seconds": 1.0} | limits)))
    service, _ = build(options)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(1024)
    server = uvicorn.Server(uvicorn.Config(build_app(service), log_level="error", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
    thread.start()
    for _ in range(1000):
        if server.started or not thread.is_alive():
            break
        thread.join(0.01)
    try:
        assert server.started
        yield Server(bound.getsockname()[1], service, key)
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
    assert (service.worker.failed is not None) is dies
