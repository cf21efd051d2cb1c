"""Run: one request that the worker runs, and what comes of it: tokens, then the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..generate import Completion, Request
from .record import Record

if TYPE_CHECKING:
    from .worker import Worker


@dataclass
class Order:
    """What a client wants to run: a request, or the continuation of a session."""

    owner: str
    request: Request  # for a session, its prompt, state, root and first draw are filled in
    session: str | None = None
    kind: str = "session"
    append: Sequence[int] = ()  # tokens that the session reads first


class Token(NamedTuple):
    """One sampled token; `position` counts from the start of the session or prompt."""

    position: int
    token: int
    text: str
    logprob: float | None
    top: list[tuple[int, float]] | None


class Ended(NamedTuple):
    """The last item of a run."""

    completion: Completion
    session: dict[str, Any] | None  # as the API shows it
    start: int  # position of the first sampled token


@dataclass(eq=False)
class Run:
    """A request that is running; the asyncio side iterates over it."""

    order: Order
    worker: Worker
    items: asyncio.Queue[Token | Ended | Exception] = field(default_factory=asyncio.Queue)
    id: int = -1
    start: int = 0
    record: Record | None = None
    count: int = 0  # tokens so far
    began: float = 0.0
    latest: float = 0.0  # time of the last token

    async def __aiter__(self) -> AsyncIterator[Token | Ended]:
        ended = False
        try:
            while not ended:
                item = await self.items.get()
                ended = not isinstance(item, Token)
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            if not ended:
                self.cancel()

    def waiting(self) -> bool:
        """Return whether the next item is already here."""
        return not self.items.empty()

    def cancel(self) -> None:
        """End the run at the start of the next step."""
        self.worker.post(lambda: self.worker.cancel(self))
