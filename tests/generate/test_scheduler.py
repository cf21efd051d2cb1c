"""Scheduler: requests that join and leave at random get the tokens they get alone; limits, errors, threads."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import torch

from linnet.data import ByteTokenizer
from linnet.errors import ArgumentError, BackendError, StateError
from linnet.generate import (
    Completion,
    Engine,
    Event,
    Generation,
    QueueFullError,
    Request,
    Sampling,
    Scheduler,
    Session,
    generation,
    open_engine,
)
from linnet.models import LanguageModel, ModelConfig, ModelState, build

BYTES = ByteTokenizer()
CHUNK = 5
ENGINES = [
    ("torch", "float32", torch.float64),
    ("torch", "float32", torch.float32),
    ("native", "float32", torch.float32),
    ("native", "int8", torch.float32),
]
everywhere = pytest.mark.parametrize(("backend", "weights", "dtype"), ENGINES, ids=str)
LONGEST = 10_000  # steps, so that a test cannot hang


def small(dtype: torch.dtype = torch.float32, **changes: Any) -> LanguageModel:
    torch.manual_seed(1)
    shape = {"d_model": 16, "n_layers": 2, "n_heads": 2, "key_dim": 4, "positions": "rotary", "init_std": 0.3}
    model = build(ModelConfig(mixer=("conv", "elu"), **(shape | changes)))
    assert isinstance(model, LanguageModel)
    return model.to(dtype).eval().requires_grad_(False)


def opened(backend: str, weights: str, dtype: torch.dtype) -> Engine:
    try:
        return open_engine(small(dtype), backend=backend, weights=weights)
    except BackendError as error:
        pytest.skip(str(error))


def drawn(rng: random.Random, states: list[ModelState]) -> Request:
    """Draw a request of any kind."""
    text = "".join(rng.choice("abcdef é\n") for _ in range(rng.randint(1, 30)))
    return Request(
        prompt=rng.choice([text, list(text.encode()), "the same prompt", "the same prompt"]),
        max_tokens=rng.randint(2, 20),
        sampling=rng.choice(
            [
                Sampling(temperature=0),
                Sampling(seed=rng.randrange(100)),
                Sampling(seed=3, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2),
            ]
        ),
        stop=rng.choice([(), (), ("e", "ab")]),
        stop_tokens=rng.choice([(), (), (7, 200)]),
        logprobs=rng.choice([None, None, 0, 2]),
        state=rng.choice([None, None, *states]),
        row=rng.randint(0, 3),
    )


def alone(request: Request, engine: Engine) -> Completion:
    """Run the request alone in a Generation."""
    draws = {**vars(request)}
    prompt, state, row = draws.pop("prompt"), draws.pop("state"), draws.pop("row")
    draws.pop("name")
    model = engine.model
    assert isinstance(model, LanguageModel)
    with Generation(model, [prompt] * (row + 1), tokenizer=BYTES, states=state, engine=engine, **draws) as run:
        while run.live:
            run.step()
    return run.completions[row]


def assert_same(done: Completion, wanted: Completion, *, tokens: int | None = None) -> None:
    assert done.tokens == wanted.tokens[:tokens]
    assert done.prompt_tokens == wanted.prompt_tokens
    if tokens is None:
        assert (done.text, done.finish, done.stop, done.seed) == (wanted.text, wanted.finish, wanted.stop, wanted.seed)
    if wanted.logprobs is not None:
        torch.testing.assert_close(done.logprobs, wanted.logprobs[:tokens], rtol=1e-4, atol=1e-4)
        assert (done.top is None) == (wanted.top is None)


def finished(scheduler: Scheduler) -> dict[int, list[Event]]:
    """Step until all have ended; return the events of each."""
    events = defaultdict(list)
    for _ in range(LONGEST):
        if not scheduler.live:
            return events
        for event in scheduler.step():
            events[event.id].append(event)
    raise AssertionError("requests are still running")


@everywhere
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_arrivals_and_cancellations_change_nothing_for_the_others(
    backend: str, weights: str, dtype: torch.dtype, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "READ", CHUNK)
    engine, rng = opened(backend, weights, dtype), random.Random(seed)
    states = [engine.model.read(torch.tensor([[1, 2, 3]]))[1], engine.model.read(torch.tensor([[4]]))[1]]
    scheduler = Scheduler(engine, tokenizer=BYTES, max_rows=4, max_queued=50, chunk=CHUNK)
    asked: dict[int, Request] = {}
    events: dict[int, list[Event]] = defaultdict(list)
    for _ in range(LONGEST):
        if len(asked) < 30 and rng.random() < 0.5:
            request = drawn(rng, states)
            asked[scheduler.add(request)] = request
        if asked and rng.random() < 0.08:
            scheduler.cancel(rng.choice(list(asked)))
        for event in scheduler.step():
            events[event.id].append(event)
        assert len(engine.rows) <= 4
        if len(asked) == 30 and not scheduler.live:
            break
    assert set(events) == set(asked)
    assert engine.rows == []
    cut = 0
    for id, request in asked.items():
        *before, last = events[id]
        done, wanted = last.completion, alone(request, engine)
        assert done is not None
        assert all(event.completion is None and event.error is None for event in before)
        pieces = [event.piece for event in events[id] if event.piece is not None]
        assert [piece.token for piece in pieces] == done.tokens
        if done.finish == "interrupted":
            cut += 1
            assert_same(done, wanted, tokens=len(done.tokens))
        else:
            assert_same(done, wanted)
            assert "".join(piece.text for piece in pieces) == done.text
            assert done.state is not None and wanted.state is not None  # noqa: PT018
            torch.testing.assert_close(done.state.layers, wanted.state.layers, rtol=1e-4, atol=1e-4)
            assert torch.equal(done.state.position, wanted.state.position)
            if backend == "native":  # the same bits
                assert done.logprobs == wanted.logprobs
                torch.testing.assert_close(done.state.layers, wanted.state.layers, rtol=0, atol=0)
    assert 0 < cut < 25


def test_a_long_prompt_is_read_between_the_steps_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sizes = open_engine(small()), []
    read = engine.read
    monkeypatch.setattr(engine, "read", lambda x, row: (sizes.append(len(x)), read(x, row))[1])
    scheduler = Scheduler(engine, tokenizer=BYTES, chunk=8)
    short = scheduler.add(Request(prompt="It", max_tokens=50))
    scheduler.step()
    long = scheduler.add(Request(prompt="x" * 35, max_tokens=2))
    late = scheduler.add(Request(prompt="late", max_tokens=2))
    tokens: dict[int, list[int]] = defaultdict(list)
    for step in range(8):
        for event in scheduler.step():
            tokens[event.id].append(step)
    assert tokens[short] == list(range(8))  # a token in every step
    assert tokens[late] == [1, 2]  # does not wait for the whole long prompt
    assert tokens[long] == [5, 6]
    assert sizes == [2, 8, 4, 8, 8, 8, 3]
    assert scheduler.cancel(short)
    (event,) = scheduler.step()
    assert event.completion is not None
    assert (event.completion.finish, len(event.completion.tokens)) == ("interrupted", 9)


def test_no_step_reads_more_than_a_chunk_however_many_prompts_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sizes = open_engine(small()), []
    read = engine.read
    monkeypatch.setattr(engine, "read", lambda x, row: (sizes.append(len(x)), read(x, row))[1])
    scheduler = Scheduler(engine, tokenizer=BYTES, max_rows=8, chunk=8)
    running = scheduler.add(Request(prompt="It", max_tokens=100))
    scheduler.step()
    long = [scheduler.add(Request(prompt=f"{i}" * 50, max_tokens=1)) for i in range(6)]
    ended: set[int] = set()
    for _ in range(LONGEST):
        sizes.clear()
        events = scheduler.step()
        assert sum(sizes) <= 8
        assert running in {event.id for event in events}  # a token in every step, whatever else is read
        ended |= {event.id for event in events if event.completion is not None}
        if ended >= set(long):
            break
    assert ended == set(long)


def test_equal_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, count = open_engine(small()), []
    read = engine.read
    monkeypatch.setattr(engine, "read", lambda x, row: (count.append(row), read(x, row))[1])
    scheduler = Scheduler(engine, tokenizer=BYTES, chunk=4)
    first, second, third = (
        scheduler.add(Request(prompt="the same", max_tokens=9, sampling=Sampling(seed=7), row=row)) for row in (0, 1, 0)
    )
    scheduler.step()
    scheduler.cancel(first)  # its row is the one being read; the others still need it
    events = finished(scheduler)
    assert len(count) == 2
    assert [len(events[id]) for id in (first, second, third)] == [1, 9, 9]
    tokens = [[event.piece.token for event in events[id] if event.piece] for id in (second, third)]
    assert tokens[0] != tokens[1]
    assert tokens[1] == alone(Request(prompt="the same", max_tokens=9, sampling=Sampling(seed=7)), engine).tokens


def test_more_requests_than_fit_are_refused_until_one_has_ended() -> None:
    scheduler = Scheduler(open_engine(small()), tokenizer=BYTES, max_rows=2, max_queued=1)
    ids = [scheduler.add(Request(prompt="It", max_tokens=n)) for n in (1, 5, 5)]
    assert (scheduler.live, scheduler.waiting) == (3, 3)
    with pytest.raises(QueueFullError, match=r"3 requests are running or waiting; accepted: 3 \(max_rows 2"):
        scheduler.add(Request(prompt="It"))
    scheduler.step()
    assert (scheduler.live, scheduler.waiting) == (2, 1)
    ids.append(scheduler.add(Request(prompt="It", max_tokens=1)))
    assert len(set(ids)) == 4
    assert set(finished(scheduler)) == set(ids[1:])


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"prompt": ""}, "prompt is ''; accepted: one token or more"),
        ({"prompt": [300]}, r"prompt\[0\] is 300; accepted: 0 to 255"),
        ({"prompt": "It", "max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": "It", "stop": [""]}, "stop is ''"),
        ({"prompt": "It", "logprobs": 300}, "logprobs is 300; accepted: a whole number from 0 to 256"),
        ({"prompt": "It", "row": -1}, "row is -1"),
        ({"prompt": "It", "sampling": 0.8}, r"sampling is 0\.8; accepted: a linnet.generate.Sampling"),
    ],
    ids=str,
)
def test_a_bad_request_is_refused_when_it_is_added(request_: dict[str, Any], sentence: str) -> None:
    scheduler = Scheduler(open_engine(small()), tokenizer=BYTES)
    with pytest.raises(ArgumentError, match=sentence):
        scheduler.add(Request(**request_))
    assert scheduler.live == 0
    for name in ("max_rows", "chunk"):
        with pytest.raises(ArgumentError, match=f"{name} is 0"):
            Scheduler(scheduler.engine, **{name: 0})


def test_a_state_that_does_not_fit_is_refused_when_it_is_added() -> None:
    scheduler = Scheduler(open_engine(small()), tokenizer=BYTES)
    other = small(d_model=8).read(torch.tensor([[1]]))[1]
    with pytest.raises(StateError, match="use the model that produced the state"):
        scheduler.add(Request(prompt="It", state=other))
    two = small().read(torch.tensor([[1], [2]]))[1]
    with pytest.raises(StateError, match="states has 2 rows for 1 prompts"):
        scheduler.add(Request(prompt="It", state=two))


@everywhere
def test_a_request_that_fails_ends_alone(backend: str, weights: str, dtype: torch.dtype) -> None:
    """A state full of NaN fails when a token is sampled, one at the last position when it is stepped."""
    engine = opened(backend, weights, dtype)
    state = engine.model.read(torch.tensor([[1, 2]]))[1]
    layers = tuple(type(layer)(*(torch.full_like(x, torch.nan) for x in layer)) for layer in state.layers)
    broken = ModelState(layers, state.position)
    full = ModelState(state.layers, torch.tensor([2**40 - 3]))
    scheduler = Scheduler(engine, tokenizer=BYTES)
    good = Request(prompt="It was", max_tokens=12, sampling=Sampling(seed=5))
    first, bad, late = (scheduler.add(r) for r in (good, Request(prompt="It", state=broken), good))
    end = scheduler.add(Request(prompt="I", state=full))
    events = finished(scheduler)
    wanted = alone(good, engine)
    for id in (first, late):
        done = events[id][-1].completion
        assert done is not None
        assert_same(done, wanted)
    (event,) = events[bad]
    assert isinstance(event.error, ValueError)
    assert "not a finite number" in str(event.error)
    assert event.completion is not None
    assert event.completion.finish == "error"
    assert isinstance(events[end][-1].error, ValueError)
    assert sum(event.piece is not None for event in events[end]) > 0
    assert engine.rows == []


def test_a_prompt_that_cannot_be_read_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(small())
    read = engine.read

    def fail(x: torch.Tensor, row: int) -> torch.Tensor:
        if x[0] == ord("!"):
            raise MemoryError("no room")
        return read(x, row)

    monkeypatch.setattr(engine, "read", fail)
    scheduler = Scheduler(engine, tokenizer=BYTES)
    good, bad = (scheduler.add(Request(prompt=text, max_tokens=3)) for text in ("It", "!"))
    events = finished(scheduler)
    assert [event.piece is not None for event in events[good]] == [True] * 3
    assert isinstance(events[bad][0].error, MemoryError)
    assert engine.rows == []


def test_closing_ends_everything_where_it_is() -> None:
    engine = open_engine(small())
    with Scheduler(engine, tokenizer=BYTES, max_rows=2, chunk=4) as scheduler:
        running = scheduler.add(Request(prompt="It"))
        scheduler.step()
        reading, queued = (scheduler.add(Request(prompt="a long prompt")) for _ in range(2))
        scheduler.step()
        part = scheduler.completion(running)
        assert len(part.tokens) == 2
        ended = {event.id: event.completion for event in scheduler.close()}
    assert engine.rows == []
    assert {id: done.finish for id, done in ended.items() if done} == dict.fromkeys(ended, "interrupted")
    assert set(ended) == {running, reading, queued}
    assert ended[running] is part
    assert part.state is not None
    assert int(part.state.position) == 2 + 1
    with pytest.raises(StateError, match="this scheduler is closed"):
        scheduler.add(Request(prompt="It"))
    with pytest.raises(StateError, match="request 0 is not running"):
        scheduler.completion(running)
    assert not scheduler.cancel(running)


@everywhere
def test_sessions_and_requests_share_an_engine(backend: str, weights: str, dtype: torch.dtype) -> None:
    engine = opened(backend, weights, dtype)
    model = engine.model
    assert isinstance(model, LanguageModel)
    request, how = Request(prompt="It was", max_tokens=10, sampling=Sampling(seed=5)), Sampling(seed=2)
    wanted = alone(request, engine)
    with Session(model, tokenizer=BYTES, engine=engine, keep=4) as session:
        session.feed("Call me")
        tokens = [session.sample(how) for _ in range(10)]
    scheduler = Scheduler(engine, tokenizer=BYTES)
    id = scheduler.add(request)
    with Session(model, tokenizer=BYTES, engine=engine, keep=4) as session:
        session.feed("Call me")
        sampled, events = [], []
        for _ in range(10):
            sampled.append(session.sample(how))
            session.rollback(1)
            events += scheduler.step()
            assert session.sample(how) == sampled[-1]
        assert sampled == tokens
        assert not scheduler.live
    assert engine.rows == []
    done = events[-1].completion
    assert done is not None
    assert (events[-1].id, done.tokens) == (id, wanted.tokens)


def test_requests_are_added_and_cancelled_from_many_threads() -> None:
    """Four threads add and cancel while the main one steps: each request ends once, with the tokens it gets alone."""
    engine = open_engine(small())
    requests = [Request(prompt=f"number {i % 7}", max_tokens=6, sampling=Sampling(seed=i % 7)) for i in range(80)]
    wanted = [alone(request, engine).tokens for request in requests[:7]]
    scheduler = Scheduler(engine, tokenizer=BYTES, max_rows=5, max_queued=len(requests), chunk=4)
    asked: dict[int, int] = {}
    errors: list[Exception] = []

    def work(first: int) -> None:
        try:
            for i in range(first, len(requests), 4):
                id = scheduler.add(requests[i])
                asked[id] = i
                if i % 5 == 0:
                    scheduler.cancel(id)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    events: dict[int, list[Event]] = defaultdict(list)
    for _ in range(LONGEST):
        for event in scheduler.step():
            events[event.id].append(event)
        if not scheduler.live and not any(thread.is_alive() for thread in threads):
            break
    for thread in threads:
        thread.join(timeout=60)
    assert not errors
    assert set(events) == set(asked) == set(range(len(requests)))
    for id, i in asked.items():
        ends = [event.completion for event in events[id] if event.completion is not None]
        assert len(ends) == 1
        if ends[0].finish == "interrupted":
            assert i % 5 == 0
        assert ends[0].tokens == wanted[i % 7][: len(ends[0].tokens)]
        assert ends[0].finish == "interrupted" or len(ends[0].tokens) == 6
    assert engine.rows == []


def test_a_request_added_while_the_queue_is_rebuilt_is_not_lost() -> None:
    """A cancelled request is taken out of the queue; without the lock, `add` of another thread could be undone."""
    scheduler = Scheduler(open_engine(small()), tokenizer=BYTES, max_rows=1)
    request = Request(prompt="It", max_tokens=1)
    ids = [scheduler.add(request) for _ in range(3)]
    thread = Thread(target=lambda: ids.append(scheduler.add(request)))

    class Interrupted(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from list(super().__iter__())
            thread.start()
            thread.join(timeout=0.2)  # it waits for the lock until the queue is complete again

    scheduler._queue = Interrupted(scheduler._queue)
    scheduler.cancel(ids[1])
    events = scheduler.step()
    thread.join(timeout=60)
    assert len(ids) == 4
    ended = [event.id for event in events] + list(finished(scheduler))
    assert sorted(ended) == sorted(ids)


def test_a_second_thread_that_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(small())
    scheduler = Scheduler(engine, tokenizer=BYTES)
    scheduler.add(Request(prompt="It"))
    read, errors = engine.read, []

    def other() -> None:
        try:
            scheduler.step()
        except StateError as error:
            errors.append(str(error))

    def reading(x: torch.Tensor, row: int) -> torch.Tensor:
        thread = Thread(target=other)
        thread.start()
        thread.join(timeout=60)
        return read(x, row)

    monkeypatch.setattr(engine, "read", reading)
    assert len(scheduler.step()) == 1
    assert errors == ["another thread is stepping this scheduler; accepted: step from one thread at a time"]
    assert len(scheduler.step()) == 1
