"""Several runs of one request (its choices): start all or none, and read their items in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from .run import Ended, Order, Run, Token
from .worker import Worker


async def start(worker: Worker, orders: Sequence[Order]) -> list[Run]:
    """Start all orders; if one is refused, cancel the others and raise its error."""
    runs: list[Run] = []
    try:
        for order in orders:
            runs.append(await worker.run(order))
    except BaseException:
        for run in runs:
            run.cancel()
        raise
    return runs


async def finish(runs: Sequence[Run]) -> list[Ended]:
    """Return the last item of each run."""
    ended: list[Ended] = []
    try:
        for run in runs:
            async for item in run:
                if isinstance(item, Ended):
                    ended.append(item)
    finally:
        for run in runs[len(ended) :]:
            run.cancel()
    return ended


async def items(runs: Sequence[Run]) -> AsyncIterator[tuple[int, Token | Ended]]:
    """Yield (index of the run, item) in the order in which they come."""
    if len(runs) == 1:
        async for item in runs[0]:
            yield 0, item
        return
    merged: asyncio.Queue[tuple[int, Token | Ended | Exception]] = asyncio.Queue(maxsize=len(runs))

    async def pump(i: int, run: Run) -> None:
        try:
            async for item in run:
                await merged.put((i, item))
        except Exception as error:
            await merged.put((i, error))

    pumps = [asyncio.ensure_future(pump(i, run)) for i, run in enumerate(runs)]
    try:
        left = len(runs)
        while left:
            i, new = await merged.get()
            if isinstance(new, Exception):
                raise new
            left -= isinstance(new, Ended)
            yield i, new
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for run in runs:
            run.cancel()
