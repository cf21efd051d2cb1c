"""Sessions, generations and a scheduler on one engine, each in its own thread, produce the same tokens as alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from linnet.generate import Engine, Generation, Request, Sampling, Scheduler, Session
from linnet.generate.engine import evaluation_mode
from linnet.models import LanguageModel
from tests.generate.engines import language, opened, tokens

STEPS, TIMEOUT = 40, 60  # tokens of each user of the engine; seconds after which a thread counts as stuck
BACKENDS = pytest.mark.parametrize("backend", ["torch", "native"])
User = Callable[[Engine], list[list[int]]]


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Make Python change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def model_of(engine: Engine) -> LanguageModel:
    assert isinstance(engine.model, LanguageModel)
    return engine.model


def session_user(seed: int) -> User:
    """A session that samples, rolls back and forks."""

    def use(engine: Engine) -> list[list[int]]:
        how = Sampling(seed=seed)
        with Session(model_of(engine), engine=engine, keep=4) as session:
            session.feed(tokens(30 + seed, seed))
            for i in range(STEPS):
                session.sample(how)
                if i % 5 == 0:
                    session.replace(1, [i % 7])
            with session.fork()[0] as other:
                other.sample(Sampling(seed=seed + 1))
                return [session.tokens, other.tokens]

    return use


def scheduler_user(engine: Engine) -> list[list[int]]:
    """A scheduler with more requests than rows, and prompts longer than a chunk."""
    with Scheduler(engine, max_rows=2, chunk=8) as scheduler:
        for i in range(4):
            how = Sampling(seed=i)
            scheduler.add(Request(prompt=tokens(5 + 7 * i, i).tolist(), max_tokens=STEPS // 2 + i, sampling=how))
        ended = {}
        while scheduler.live:
            for event in scheduler.step():
                if event.completion is not None:
                    ended[event.id] = event.completion.tokens
    return [ended[id] for id in sorted(ended)]


def generation_user(engine: Engine) -> list[list[int]]:
    """A generation of three prompts."""
    prompts = [tokens(3 + i, 10 + i).tolist() for i in range(3)]
    with Generation(model_of(engine), prompts, engine=engine, max_tokens=STEPS, sampling=Sampling(seed=3)) as run:
        while run.live:
            run.step()
    return [done.tokens for done in run.completions]


def run_together(users: list[User], engine: Engine) -> list[list[list[int]]]:
    """Run each user in its own thread, all started together; return their tokens."""
    results: dict[int, list[list[int]]] = {}
    errors: list[BaseException] = []
    start = threading.Barrier(len(users))

    def work(i: int) -> None:
        try:
            torch.set_num_threads(1)  # a setting of each thread
            start.wait(TIMEOUT)
            results[i] = users[i](engine)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(users))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert errors == []
    return [results[i] for i in range(len(users))]


@BACKENDS
@pytest.mark.parametrize("kind", ["elu", "conv, window and rebased", "grouped elu and softmax"])
def test_two_sessions_and_a_scheduler_on_one_engine(kind: str, backend: str) -> None:
    model = language(kind, torch.float32)
    users = [session_user(0), session_user(1), scheduler_user]
    alone = [run_together([user], opened(model, backend))[0] for user in users]
    engine = opened(model, backend)
    assert run_together(users, engine) == alone
    assert engine.rows == []
    assert len({tuple(row) for rows in alone for row in rows}) == 8  # all streams differ: a mixed-up row would show


@BACKENDS
def test_generations_and_a_scheduler_on_one_engine(backend: str) -> None:
    model = language("conv, window and rebased", torch.float32)
    users = [generation_user, generation_user, scheduler_user]
    alone = [run_together([user], opened(model, backend))[0] for user in users]
    assert run_together(users, opened(model, backend)) == alone


def test_a_call_that_ends_first_does_not_turn_dropout_on_for_the_others() -> None:
    model = language("elu", torch.float32)
    first, second = evaluation_mode(model), evaluation_mode(model)
    model.train()
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not model.training
        second.__exit__(None, None, None)
        assert model.training
    finally:
        model.eval()
    with evaluation_mode(model):
        assert not model.training
    assert not model.training
