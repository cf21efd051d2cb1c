"""A client that measures: many streams of one server at once, each token with the time it arrived.

    streams = asyncio.run(all_streams(port, bodies, limit=60))
    summary(streams) -> time to the first token, inter-token p50 and p99, tokens/s

A time is that of the read from the socket that brought the token: tokens that a server sends together count as arriving
together, with a gap of zero between them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from time import perf_counter
from typing import Any

from .serve_process import LOOPBACK, Server

READ = 1 << 16
COMPLETIONS = "/v1/completions"
TOKEN = (b'"finish_reason":null', b'"finish_reason": null')
SAMPLE = 0.1  # seconds between two looks at the memory


@dataclass
class Stream:
    """What one request received."""

    sent: float = 0.0
    times: list[float] = field(default_factory=list)  # of tokens
    counted: int | None = None  # tokens, as the server counts them
    problem: str | None = None
    done: bool = False

    @property
    def tokens(self) -> int:
        return len(self.times) if self.counted is None else self.counted


async def one_stream(port: int, body: dict[str, Any], stream: Stream, path: str = COMPLETIONS) -> None:
    """Send one request and note the time of each token in `stream`."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
        stream.sent = perf_counter()
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        status = await reader.readline()
        if b" 200" not in status:
            stream.problem = (await reader.read(READ)).decode(errors="replace").rpartition("\r\n\r\n")[2][:300]
            return
        kept = b""
        while part := await reader.read(READ):
            now = perf_counter()
            *events, kept = (kept + part).split(b"\n\n")
            for event in events:
                if TOKEN[0] in event or TOKEN[1] in event:
                    stream.times.append(now)
                elif b'"usage"' in event and b"completion_tokens" in event:
                    stream.counted = int(json.loads(event[event.index(b"data: ") + 6 :])["usage"]["completion_tokens"])
        stream.done = True
    finally:
        writer.close()


async def all_streams(
    server: Server, bodies: Sequence[dict[str, Any]], limit: float, memory: list[int] | None = None
) -> list[Stream]:
    """Send all requests at once and cancel what is left after `limit` seconds; `memory` takes samples of the memory."""
    streams = [Stream() for _ in bodies]
    tasks = [asyncio.create_task(_guarded(server, *pair)) for pair in zip(bodies, streams, strict=True)]
    watching = asyncio.create_task(_watch(server, [] if memory is None else memory))
    _, late = await asyncio.wait(tasks, timeout=limit)
    for task in (*late, watching):
        task.cancel()
    await asyncio.gather(*tasks, watching, return_exceptions=True)
    for stream in streams:
        if not stream.done and stream.problem is None:
            stream.problem = f"not complete after {limit:g} s"
    return streams


async def _guarded(server: Server, body: dict[str, Any], stream: Stream) -> None:
    try:
        await one_stream(server.port, body, stream)
    except (OSError, ValueError) as error:
        stream.problem = str(error)


async def _watch(server: Server, samples: list[int]) -> None:
    while True:
        rss = server.rss()
        if rss is not None:
            samples.append(rss)
        await asyncio.sleep(SAMPLE)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))] if ordered else None


def gaps(streams: Sequence[Stream], start: float = 0.0, end: float = float("inf")) -> list[float]:
    """Return the seconds between tokens that follow each other, both within a time."""
    pairs = [pair for stream in streams for pair in zip(stream.times, stream.times[1:], strict=False)]
    return [after - before for before, after in pairs if start <= before and after <= end]


def summary(streams: Sequence[Stream]) -> dict[str, Any]:
    """Return the numbers of a cell; `problem` if a stream failed."""
    problems = [stream.problem for stream in streams if stream.problem]
    if problems:
        arrived = sum(len(stream.times) for stream in streams)
        return {
            "problem": f"{len(problems)} of {len(streams)} streams: {problems[0]}; tokens that arrived: {arrived:,}"
        }
    began, ended = min(stream.sent for stream in streams), max(stream.times[-1] for stream in streams)
    firsts, tokens = [stream.times[0] - stream.sent for stream in streams], sum(stream.tokens for stream in streams)
    from_all = max(stream.times[0] for stream in streams)  # from here to the first end, all streams are decoding
    until = min(stream.times[-1] for stream in streams)
    together = sum(from_all < time <= until for stream in streams for time in stream.times)
    between = gaps(streams)
    return {
        "tokens": tokens,
        "seconds": ended - began,
        "tokens_per_second": tokens / (ended - began),
        "decoding_tokens_per_second": together / (until - from_all) if until > from_all and together else None,
        "first_token_p50_s": quantile(firsts, 0.5),
        "first_token_max_s": max(firsts),
        "gap_p50_s": quantile(between, 0.5),
        "gap_p99_s": quantile(between, 0.99),
    }


def request(server: Server, method: str, path: str, body: Any = None, timeout: float = 300.0) -> Any:
    """Return the JSON of the answer to one request; raise RuntimeError for another status than 2xx."""
    connection = HTTPConnection(LOOPBACK, server.port, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status}: {text[:300].decode(errors='replace')}")
        return json.loads(text)
    finally:
        connection.close()


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and its value."""
    began = perf_counter()
    value = call()
    return perf_counter() - began, value
