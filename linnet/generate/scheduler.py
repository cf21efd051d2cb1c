"""Scheduler: run many requests on one engine, which join and leave at any time; the caller drives it step by step.

    scheduler = Scheduler(open_engine(model), tokenizer=tokenizer, max_rows=8)
    number = scheduler.add(Request(prompt="It was", max_tokens=50))
    while scheduler.live:
        for event in scheduler.step(): ...                 event.id, event.piece, event.completion, event.error

A step reads at most `chunk` tokens of prompts, then samples a token for every row whose prompt has been read, so that a
long prompt never stalls the others. A prompt is split at multiples of `chunk`, so the output of a request does not
depend on the others. B rows of a step, N vocabulary.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..data import Tokenizer
from ..errors import StateError, whole
from .batch import Batch
from .completion import Completion, Piece
from .engine import Engine
from .prefixes import STEPS, PrefixStates, extend_key
from .reading import Reading
from .requests import Request, check_model, check_request
from .row import Row
from .sampling import Array, numbers

CHUNK = 256  # tokens of prompts read between two steps

P = ParamSpec("P")
R = TypeVar("R")


class QueueFullError(RuntimeError):
    """The scheduler holds as many requests as it may; retry when one has ended."""


class Event(NamedTuple):
    """What happened to one request in a step: a token, its end, or both."""

    id: int
    piece: Piece | None = None  # the sampled token; None if it ended without one
    completion: Completion | None = None  # with the last event of a request
    error: Exception | None = None  # why it failed; its `completion.finish` is "error"


def _driven(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Run a method of Scheduler, or raise StateError if another thread is inside one of them."""

    @wraps(method)
    def guarded(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._turn.acquire(blocking=False):
            raise StateError("another thread is stepping this scheduler; accepted: step from one thread at a time")
        try:
            return method(self, *args, **kwargs)
        finally:
            self._turn.release()

    return guarded


class Scheduler:
    """Requests wait in order of arrival until one of `max_rows` rows is free; up to `max_queued` may wait.

    Threads: `add`, `cancel`, `completion`, `live` and `waiting` may be called from any thread, also during a step.
    `step`, `read_prompts` and `close` may be called from one thread at a time; a second one gets a StateError. There
    is no background thread: nothing runs between calls. Other users of the engine, such as sessions, generations and
    other schedulers, may step their own rows from other threads.

    After an interrupt (KeyboardInterrupt) inside a step, the scheduler can only be closed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        tokenizer: Tokenizer | None = None,
        max_rows: int = 16,
        max_queued: int = 64,
        chunk: int = CHUNK,
        prefixes: PrefixStates | None = None,
    ) -> None:
        self.model = check_model(engine.model, tokenizer)
        self.engine, self.tokenizer = engine, tokenizer
        self.max_rows, self.max_queued = whole("max_rows", max_rows, 1), whole("max_queued", max_queued, 0)
        self.chunk, self.prefixes = whole("chunk", chunk, 1), prefixes
        self._device = next(self.model.parameters()).device
        self._lock = Lock()  # guards the fields that `add` and `cancel` change; never held during a step
        self._next = 0
        self._live: dict[int, Row] = {}
        self._queue: deque[Row] = deque()
        self._cancelled: set[int] = set()
        self._closed = False
        self._turn = Lock()  # held by the thread that steps; it alone uses the fields below
        self._reading: deque[Reading] = deque()
        self._fresh: list[tuple[Row, Array]] = []  # prompt read, no token sampled yet; logits [1,N]
        self._joining: list[Row] = []  # the same, with a token to step
        self.read_tokens = self.cached_tokens = 0  # of all prompts so far
        self._running = Batch()

    @property
    def live(self) -> int:
        """Number of requests that have not ended; call `step` while it is positive."""
        return len(self._live)

    @property
    def waiting(self) -> int:
        """Number of requests that have no row yet."""
        return len(self._queue)

    def add(self, request: Request) -> int:
        """Queue a request and return its id; the engine is not used before the next step.

        Raise ArgumentError for a bad request, StateError for a bad state, and QueueFullError beyond
        `max_rows + max_queued` requests.
        """
        self._check_capacity()
        job = check_request(self.model, self.tokenizer, request)
        if job.state is not None:
            self.engine.check_state(job.state)
        row = Row(job, self.tokenizer, self.model.config.vocab_size)
        with self._lock:
            self._check_capacity()
            row.id, self._next = self._next, self._next + 1
            self._live[row.id] = row
            self._queue.append(row)
        return row.id

    def cancel(self, id: int) -> bool:
        """End a request at the start of the next step, which returns its last event; return False if it has ended."""
        with self._lock:
            if id not in self._live:
                return False
            self._cancelled.add(id)
            return True

    def completion(self, id: int) -> Completion:
        """Return the completion of a running request, which later steps extend."""
        row = self._live.get(id)
        if row is None:
            raise StateError(f"request {id!r} is not running; its completion came with its last event")
        return row.done

    @_driven
    def step(self) -> list[Event]:
        """Read a chunk of prompts and sample a token for each row that is ready; return the events, in any order."""
        events = self._settle() if self._cancelled or self._queue else []
        if self._reading:
            events += self._read(self.chunk)
        return events + self._decode() if events else self._decode()

    @_driven
    def read_prompts(self) -> list[Event]:
        """Read the prompts of all requests that have a row completely, without sampling; return events of failures."""
        return self._settle() + self._read(None)

    @_driven
    def close(self) -> list[Event]:
        """End all requests as they are and return their last events; later calls of `add` raise StateError."""
        with self._lock:
            self._closed = True
            rows = list(self._live.values())
        return self._interrupt(rows)

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_capacity(self) -> None:
        if self._closed:
            raise StateError("this scheduler is closed; open another")
        if len(self._live) >= self.max_rows + self.max_queued:
            raise QueueFullError(
                f"{len(self._live)} requests are running or waiting; accepted: {self.max_rows + self.max_queued} "
                f"(max_rows {self.max_rows}, max_queued {self.max_queued}); retry when one has ended"
            )

    def _settle(self) -> list[Event]:
        """End cancelled requests and give free rows to waiting ones."""
        with self._lock:
            gone = [self._live[id] for id in sorted(self._cancelled) if id in self._live]
            self._cancelled.clear()
        events = self._interrupt(gone)
        with self._lock:
            free = self.max_rows - (len(self._live) - len(self._queue))
            new = self._next_rows(min(free, len(self._queue)))
        for row in new:
            same = next((reading for reading in self._reading if reading.fits(row)), None)
            if same is None:
                self._reading.append(Reading(row, self.chunk))
            else:
                same.rows.append(row)
        return events

    def _next_rows(self, count: int) -> list[Row]:
        """Remove rows from the queue: the oldest of the owner with the fewest requests that have a row, each time."""
        if len({row.job.owner for row in self._queue}) < 2:
            return [self._queue.popleft() for _ in range(count)]
        waiting = {row.id for row in self._queue}
        running = Counter(row.job.owner for row in self._live.values() if row.id not in waiting)
        rows = []
        for _ in range(count):
            row = min(self._queue, key=lambda row: running[row.job.owner])
            running[row.job.owner] += 1
            self._queue.remove(row)
            rows.append(row)
        return rows

    def _interrupt(self, rows: Sequence[Row]) -> list[Event]:
        for row in rows:
            row.end("interrupted")
        for reading in list(self._reading):
            reading.rows = [row for row in reading.rows if row not in rows]
            if not reading.rows:
                self._drop(reading)
        with self._lock:
            self._queue = deque(row for row in self._queue if row not in rows)
        self._leave(rows)
        return [Event(row.id, completion=row.done) for row in rows]

    def _read(self, budget: int | None) -> list[Event]:
        """Read prompts in turns, a piece each, until the budget of tokens is spent; None reads all."""
        events: list[Event] = []
        while self._reading:
            reading = self._reading[0]
            try:
                self.cached_tokens += reading.skip(self.engine, self.prefixes)
                if not reading.ended:
                    if budget is not None and reading.cost > budget:
                        break
                    budget = None if budget is None else budget - reading.cost
                    self._reading.rotate(-1)
                    self.read_tokens += reading.read(self.engine, self.prefixes)
                if reading.ended:
                    events += self._finish(reading)
            except Exception as error:
                self._drop(reading)
                events += self._fail(reading.rows, error)
        return events

    def _finish(self, reading: Reading) -> list[Event]:
        """Give each request of a prompt that has been read its row; end those that wanted no more."""
        others = self.engine.fork(reading.place, len(reading.rows) - 1) if len(reading.rows) > 1 else []
        for row, place in zip(reading.rows, [reading.place, *others], strict=True):
            row.place = place
            if reading.pieces:
                row.key = reading.pieces[-1].key if row.key is not None else None
            if not row.job.max_tokens:
                row.end("length")
            elif row.job.last is not None:
                row.last = row.job.last
                self._joining.append(row)
            else:
                assert reading.logits is not None
                self._fresh.append((row, numbers(reading.logits[None])))
        self._reading.remove(reading)
        ended = [row for row in reading.rows if row.done.finish]
        self._leave(ended)
        return [Event(row.id, completion=row.done) for row in ended]

    def _drop(self, reading: Reading) -> None:
        self._reading.remove(reading)
        if reading.place >= 0:
            self.engine.remove([reading.place])

    def _decode(self) -> list[Event]:
        """Sample a token for each row, from the logits after its last token or its prompt."""
        events: list[Event] = []
        parts = []
        if self._joining:
            self._running = Batch([*self._running.rows, *self._joining])
            self._joining = []
        if self._running.rows:
            # The last tokens are read only now, so that the previous step could return them without delay.
            tokens = torch.from_numpy(np.array([row.last for row in self._running.rows])).to(self._device)
            try:
                parts.append(numbers(self.engine.step(tokens, self._running.places)))
                self._note(self._running.rows)
            except Exception:  # no row has changed: step them one by one to see which fail
                outputs, events = self._step_each(tokens)
                parts += outputs
        if self._fresh:
            parts += [logits for _, logits in self._fresh]
            self._running = Batch([*self._running.rows, *(row for row, _ in self._fresh)])
            self._fresh = []
        if not parts:
            return events
        sampled = self._sample(self._running, parts[0] if len(parts) == 1 else np.concatenate(parts))
        return events + sampled if events else sampled

    def _note(self, rows: Sequence[Row]) -> None:
        """Extend the keys of rows that were stepped, and keep a state after every STEPS tokens."""
        for row in rows:
            if row.key is None:
                continue
            row.since.append(row.last)
            if len(row.since) == STEPS:
                row.key, row.since = extend_key(row.key, row.since, True), []
                if self.prefixes is not None:
                    self.prefixes.keep(row.key, self.engine.state([row.place]))

    def _step_each(self, tokens: Tensor) -> tuple[list[Array], list[Event]]:
        outputs, events = [], []
        for i, row in enumerate(self._running.rows):
            try:
                outputs.append(numbers(self.engine.step(tokens[i : i + 1], [row.place])))
                self._note([row])
            except Exception as error:
                events += self._fail([row], error)
        return outputs, events

    def _sample(self, batch: Batch, logits: Array) -> list[Event]:
        events, ended = [], []
        for row, token, score in zip(batch.rows, batch.choose(logits), batch.score(logits), strict=True):
            if isinstance(token, Exception):
                events += self._fail([row], token)
                continue
            piece = row.take(token, score)
            events.append(Event(row.id, piece, piece.completion))
            if piece.completion is not None:
                ended.append(row)
        if ended:
            self._leave(ended)
        return events

    def _fail(self, rows: Sequence[Row], error: Exception) -> list[Event]:
        for row in rows:
            row.end("error")
            row.done.finish = "error"
        self._leave(rows)
        return [Event(row.id, completion=row.done, error=error) for row in rows]

    def _leave(self, rows: Sequence[Row]) -> None:
        """Remove rows that have ended from the engine and store their final states."""
        placed = [row for row in rows if row.place >= 0]
        for row in placed:
            row.done.state = self.engine.state([row.place])
            if row.key is not None:
                row.done.key = extend_key(row.key, row.since, True) if row.since else row.key
        if placed:
            self.engine.remove([row.place for row in placed])
            self._fresh = [(row, logits) for row, logits in self._fresh if row not in placed]
            self._joining = [row for row in self._joining if row not in placed]
            self._running = Batch([row for row in self._running.rows if row not in placed])
        with self._lock:
            for row in rows:
                self._live.pop(row.id, None)
