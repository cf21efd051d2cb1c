"""HTTP: bodies with a limit, JSON answers, server-sent events, and the end of a request whose client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .errors import ApiError, api_error
from .run import Run
from .schemas import parse

T = TypeVar("T")
encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"
TOGETHER = 64  # events that are sent in one write
PATIENCE = 60  # seconds to wait for a body


async def read_body(request: Request, most: int) -> bytes:
    """Return the body; raise ApiError 413 as soon as it is too large, and 408 if it does not come."""
    try:
        request.state.body = await asyncio.wait_for(_read(request, most), PATIENCE)
    except asyncio.TimeoutError:
        raise ApiError(408, f"the body did not come within {PATIENCE} seconds; send it again") from None
    return bytes(request.state.body)


async def _read(request: Request, most: int) -> bytes:
    stated = request.headers.get("content-length", "0")
    too_large = ApiError(
        413, f"the body is larger than {most:,} bytes; send less, or raise --max-body", code="body_too_large"
    )
    if stated.isdigit() and int(stated) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, kind: type[T], most: int) -> T:
    """Return the body as one of schemas.py."""
    return parse(await read_body(request, most), kind)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(encode(value), status, headers, "application/json")


def refusal(error: ApiError) -> Response:
    """Return an error in OpenAI's format."""
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return answer(error.body(), error.status, headers)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which is cancelled if the client goes away first."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def data_event(value: Any) -> bytes:
    """Return an event without a name, as OpenAI streams them."""
    return b"data: " + encode(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """Return an event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + encode(value) + b"\n\n"


class EventStream(StreamingResponse):
    """A stream of events; at its end, whatever the reason, its runs are cancelled if they still run."""

    def __init__(self, content: AsyncIterator[bytes], started: Sequence[Run]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._started = started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for run in self._started:
                run.cancel()


def stream(events: AsyncIterator[bytes], failure: Callable[[ApiError], bytes], started: Sequence[Run]) -> Response:
    """Return a stream of events of these runs; events of a single run that wait already are sent together."""

    def waiting() -> bool:
        return len(started) == 1 and started[0].waiting()

    async def content() -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        try:
            async for event in events:
                parts.append(event)
                if not waiting() or len(parts) == TOGETHER:
                    yield b"".join(parts)
                    parts.clear()
            parts.append(DONE)
        except Exception as error:
            parts.append(failure(api_error(error)))
        finally:
            close: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
            if close is not None:
                await close()
        yield b"".join(parts)

    return EventStream(content(), started)
