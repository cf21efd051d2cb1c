"""One engine from several threads: every thread gets the outputs that its rows get alone, bit for bit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from linnet.generate import Engine
from tests.generate.engines import VOCAB, language, opened, tokens

THREADS, STEPS = 6, 30
BACKENDS = pytest.mark.parametrize("backend", ["torch", "native"])
KINDS = pytest.mark.parametrize("kind", ["elu", "softmax", "conv, window and rebased"])


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Make Python change threads as often as it can, and torch use one thread."""
    before, torch_threads = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(1e-6)
    torch.set_num_threads(1)
    yield
    sys.setswitchinterval(before)
    torch.set_num_threads(torch_threads)


def stream(engine: Engine, seed: int) -> Tensor:
    """Read a prompt, step greedily, fork halfway and step both rows in turn, then remove them; return all outputs."""
    torch.set_num_threads(1)  # a setting of each thread
    (row,) = engine.add()
    answers = [engine.read(tokens(5 + seed, seed), row)]
    copy = row
    for t in range(STEPS):
        if t == STEPS // 2:
            (copy,) = engine.fork(row)
        for at in dict.fromkeys((row, copy)):
            answers.append(engine.step(answers[-1].argmax()[None], [at])[0])
        if t % 7 == 0:
            engine.restore([row], engine.state([row]))
    engine.remove(list(dict.fromkeys((row, copy))))
    return torch.stack(answers)


def run_together(engines: list[Engine]) -> dict[int, Tensor]:
    """Run one stream per engine, each in its own thread, all started together; return their outputs."""
    answers: dict[int, Tensor] = {}
    start = threading.Barrier(len(engines))

    def work(seed: int) -> None:
        start.wait()
        answers[seed] = stream(engines[seed], seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@BACKENDS
@KINDS
def test_threads_step_their_own_rows_of_one_engine_as_if_alone(kind: str, backend: str) -> None:
    model = language(kind, torch.float32)
    alone = [stream(opened(model, backend), seed) for seed in range(THREADS)]
    engine = opened(model, backend)
    together = run_together([engine] * THREADS)
    assert sorted(together) == list(range(THREADS))  # no thread failed
    for seed, answers in together.items():
        assert torch.equal(answers, alone[seed]), seed
    assert engine.rows == []
    assert len({tuple(x.argmax(-1).tolist()) for x in alone}) > 1  # the streams differ: a mixed-up row would show
    assert alone[0].shape[1] == VOCAB


@BACKENDS
def test_engines_of_one_model_are_independent(backend: str) -> None:
    model = language("conv, window and rebased", torch.float32)
    alone = [stream(opened(model, backend), seed) for seed in range(THREADS)]
    together = run_together([opened(model, backend) for _ in range(THREADS)])
    for seed in range(THREADS):
        assert torch.equal(together[seed], alone[seed]), seed
