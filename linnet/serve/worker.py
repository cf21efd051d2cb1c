"""Worker: the one thread that owns the engine, the scheduler, the sessions and the store.

    worker.start(loop)
    value = await worker.call(function, *arguments)         between two steps, in the worker thread
    run = await worker.run(Order(...))                      a request of the scheduler
    async for item in run: ...                              Token, then Ended; leaving early cancels it

After each step the tokens of sessions are journaled in one write, and only then given to the clients.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from ..data import Tokenizer
from ..generate import Engine, Event, Passage, Passages, PrefixStates, QueueFullError, Request, Scheduler
from ..models import LanguageModel, ModelState
from .errors import ApiError, api_error
from .limits import Limits
from .metrics import Metrics
from .record import Record
from .run import Ended, Order, Run, Token
from .sessions import Sessions
from .store import LEASE, Store

log = logging.getLogger("linnet.serve")
T = TypeVar("T")
IDLE = 1.0  # seconds between two rounds of upkeep


class Worker:
    """Start it once, in an asyncio loop; `stop` finishes or cancels what is running."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, engine: Engine, store: Store, name: str, limits: Limits,
        metrics: Metrics,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.engine, self.store = model, tokenizer, engine, store
        self.limits, self.metrics = limits, metrics
        self.prefixes = PrefixStates(limits.prefix_bytes)
        self.scheduler = Scheduler(
            engine, tokenizer=tokenizer, max_rows=limits.rows, max_queued=limits.queued, chunk=limits.chunk,
            prefixes=self.prefixes,
        )  # fmt: skip
        self.sessions = Sessions(store, model, name, limits, self.prefixes)
        self.stopping = False  # no new requests
        self.failed: BaseException | None = None
        self._runs: dict[int, Run] = {}
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="linnet-worker", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._upkeep = self._renewed = monotonic()

    def warm_up(self) -> None:
        """Read and sample a few tokens before the thread starts, so that the first client does not wait for it."""
        prompt = Passages((Passage([0] * self.limits.chunk),), 0)
        self.scheduler.add(Request(prompt=prompt, max_tokens=3, logprobs=1))
        while self.scheduler.live:
            for event in self.scheduler.step():
                if event.error is not None:
                    raise event.error
        self.scheduler.read_tokens = 0

    # ---- for the asyncio side

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.failed is None

    def post(self, command: Callable[[], None]) -> None:
        """Have the worker thread run a function between two steps."""
        self._commands.put(command)

    async def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a function in the worker thread and return its value."""
        if not self.alive:
            raise ApiError(503, "the server is stopping; send the request to another one", retry=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have gone

        def run() -> None:
            try:
                value, error = function(*args, **kwargs), None
            except Exception as raised:
                value, error = None, raised
            loop.call_soon_threadsafe(_resolve, future, value, error)

        self.post(run)
        while not future.done():
            await asyncio.wait((future,), timeout=IDLE)
            if not future.done() and not self.alive:
                raise ApiError(503, "the server has stopped; send the request to another one", retry=1)
        return future.result()

    async def run(self, order: Order) -> Run:
        """Queue an order; raise ApiError if it is refused."""
        run = Run(order, self)
        try:
            return await self.call(self._begin, run)
        except asyncio.CancelledError:
            run.cancel()
            raise

    async def stop(self, seconds: float) -> None:
        """Refuse new requests, give the running ones some time, cancel the rest and end the thread."""
        self.stopping = True
        end = monotonic() + seconds
        while self.alive and self.scheduler.live and monotonic() < end:
            await asyncio.sleep(0.05)
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join, 10)

    # ---- in the worker thread

    def _begin(self, run: Run) -> Run:
        if self.stopping:
            raise ApiError(503, "the server is stopping; send the request to another one", retry=1)
        order = run.order
        mine = sum(other.order.owner == order.owner for other in self._runs.values())
        if mine >= self.limits.rows + self.limits.queued_per_key:
            raise QueueFullError(f"{mine} requests of this key are running or waiting")
        run.began = monotonic()
        if order.session is None:
            self._check_context(order.request.state, order.request)
            run.id = self.scheduler.add(replace(order.request, owner=order.owner))
            run.start = len(self.scheduler.completion(run.id).prompt_tokens)
        else:
            self._begin_session(run, order.session)
        self._runs[run.id] = run
        return run

    def _begin_session(self, run: Run, id: str) -> None:
        order, sessions = run.order, self.sessions
        record = sessions.open(id, order.owner, order.kind)
        try:
            run.start = record.size + len(order.append)
            self._check_length(run.start + order.request.max_tokens)
            state, logits = sessions.state(record)
            before, last = sessions.unread(record)
            if order.append:
                past = ([] if last is None else [last]) + list(order.append[:-1])
                before, last, logits = (*before, Passage(past)), order.append[-1], None
            if last is None and logits is None and order.request.max_tokens:
                raise ApiError(400, f"session {id} has no token to continue from; append one or more", param="text")
            request = replace(
                order.request, prompt=Passages(before, last), state=state, root=record.key, logits=logits,
                first_draw=run.start, owner=order.owner,
            )  # fmt: skip
            run.id = self.scheduler.add(request)
            try:
                if order.append:
                    sessions.extend(record, order.append, sampled=False)
            except BaseException:
                self.scheduler.cancel(run.id)
                raise
            run.record = record
        except BaseException:
            sessions.close(id)
            raise

    def _check_context(self, state: ModelState | None, request: Request) -> None:
        prompt = request.prompt
        assert isinstance(prompt, Passages)
        tokens = sum(len(passage.tokens) for passage in prompt.passages) + (prompt.last is not None)
        self._check_length((0 if state is None else int(state.position[0])) + tokens + request.max_tokens)

    def _check_length(self, tokens: int) -> None:
        most = self.limits.context
        if most and tokens > most:
            message = f"prompt and answer would have up to {tokens:,} tokens; accepted: {most:,} for this model"
            raise ApiError(400, message, param="max_tokens", code="context_length_exceeded")

    def cancel(self, run: Run) -> None:
        """Cancel a run; from the worker thread."""
        if run.id in self._runs:
            self.scheduler.cancel(run.id)

    def _main(self) -> None:
        try:
            while self._obey():
                if self.scheduler.live:
                    self._deliver(self.scheduler.step())
                self._keep_up()
            self._deliver(self.scheduler.close())
        except BaseException as error:  # the server cannot continue; /ready reports it
            log.exception("the worker has failed")
            self.failed = error
            for run in list(self._runs.values()):
                self._send([(run, ApiError(503, "the server has failed; retry on another one"))])
        finally:
            with suppress(Exception):
                for id in list(self.sessions.busy):
                    self.sessions.close(id)
                self.store.close()

    def _obey(self) -> bool:
        """Run the commands that wait; without a request, wait for one. Return False to stop."""
        try:
            command = self._commands.get(block=not self.scheduler.live, timeout=IDLE)
            while True:
                if command is None:
                    return False
                command()
                command = self._commands.get_nowait()
        except queue.Empty:
            return True

    def _deliver(self, events: Sequence[Event]) -> None:
        """Journal what a step did to sessions, then give it to the clients."""
        batch: list[tuple[Run, Token | Ended | Exception]] = []
        put: dict[str, bytes] = {}
        gone: list[str] = []
        ended = []
        now = monotonic()
        for event in events:
            run = self._runs.get(event.id)
            if run is None:  # cancelled before it began
                continue
            if event.piece is not None:
                position = run.start + run.count
                batch.append((run, self._token(run, event, position, now)))
                if run.record is not None and event.completion is None:
                    name, value = self.sessions.journal(run.record, position, event.piece.token)
                    put[name] = value
            if event.completion is not None:
                ended.append((run, event))
                if run.record is not None:
                    new, old = self.sessions.finished(run.record, run.start, event.completion)
                    put |= new
                    gone += old
        failure: ApiError | None = None
        if put or gone:
            try:
                self.store.write(put, gone)
            except Exception:
                log.exception("the store failed")
                failure = ApiError(503, "the store of sessions failed; tokens after the last one sent are not kept")
        for run, event in ended:
            self._end(run, event, batch)
        if failure is not None:
            failed = {run for run, _ in batch if run.record is not None}
            for run in failed:
                self.scheduler.cancel(run.id)
            batch = [item for item in batch if item[0] not in failed] + [(run, failure) for run in failed]
        self._send(batch)

    def _token(self, run: Run, event: Event, position: int, now: float) -> Token:
        piece = event.piece
        assert piece is not None
        top = None
        if piece.logprob is not None:
            done = event.completion or self.scheduler.completion(event.id)
            top = done.top[-1] if done.top else []
        self.metrics.token(now - (run.latest or run.began), first=not run.count)
        run.count, run.latest = run.count + 1, now
        return Token(position, piece.token, piece.text, piece.logprob, top)

    def _end(self, run: Run, event: Event, batch: list[tuple[Run, Token | Ended | Exception]]) -> None:
        done = event.completion
        assert done is not None
        del self._runs[run.id]
        view = None
        if run.record is not None:
            self.sessions.close(run.record.id)
            view = self.sessions.view(run.record)
        self.metrics.ended(done)
        if event.error is not None:
            log.error("request %d failed: %s", run.id, event.error)
            batch.append(
                (run, api_error(event.error) if isinstance(event.error, ValueError) else api_error(Exception()))
            )
        else:
            batch.append((run, Ended(done, view, run.start)))

    def _send(self, batch: list[tuple[Run, Token | Ended | Exception]]) -> None:
        if batch and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_put_all, batch)

    def _keep_up(self) -> None:
        now = monotonic()
        if now - self._upkeep < IDLE:
            return
        self._upkeep = now
        try:
            if now - self._renewed > LEASE / 4:
                self.store.renew(self.sessions.busy)
                self._renewed = now
            self.metrics.expired(self.sessions.expire())
        except Exception:  # a store that does not answer now may answer later
            log.exception("the upkeep of the store failed")

    # ---- states as files, in the worker thread

    def final_state(self, record: Record) -> tuple[ModelState, Any]:
        """Return the state after all tokens of a session that has been read, and the logits after them [N] or None."""
        state, logits = self.sessions.state(record)
        if record.last < 0 or record.at == record.size:
            if state is None:
                raise ApiError(400, f"session {record.id} is empty: it has no state; append a token first")
            return state, logits
        import torch

        (row,) = self.engine.add(state)
        try:
            answer = self.engine.step(torch.tensor([record.last]), [row])[0].clone()
            return self.engine.state([row]), answer
        finally:
            self.engine.remove([row])


def _resolve(future: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _put_all(batch: list[tuple[Run, Token | Ended | Exception]]) -> None:
    for run, item in batch:
        run.items.put_nowait(item)
