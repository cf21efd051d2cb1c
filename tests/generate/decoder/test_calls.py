"""Prepared calls: rows stepped in turns keep theirs, and none outlives its rows or their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.generate.decoder.calls import KEPT, PreparedCalls
from linnet.generate.decoder.engine import NativeEngine
from linnet.native.library import library
from tests.generate.engines import language, tokens

pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not built")
KINDS = pytest.mark.parametrize("kind", ["elu", "softmax", "conv, window and rebased", "mamba and rwkv"])
STEPS = 90  # a softmax cache starts with 64 tokens, so it grows


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record the rows of every call that is prepared, in order."""
    seen: list[list[int]] = []
    prepare = PreparedCalls._prepare

    def counted(self: PreparedCalls, rows: list[int], threads: int) -> Any:
        seen.append(list(rows))
        return prepare(self, rows, threads)

    monkeypatch.setattr(PreparedCalls, "_prepare", counted)
    return seen


def inputs(size: int, seed: int) -> Tensor:
    return tokens(size * STEPS, seed).view(STEPS, size)


def alone(kind: str, size: int, seed: int, steps: int = STEPS) -> Tensor:
    engine = NativeEngine(language(kind, torch.float32), threads=1)
    rows = engine.add(rows=size)
    return torch.stack([engine.step(x, rows) for x in inputs(size, seed)[:steps]])


@KINDS
def test_streams_that_step_in_turns_are_each_prepared_once(kind: str, prepared: list[list[int]]) -> None:
    wanted = [alone(kind, 2, 1), alone(kind, 1, 2)]
    prepared.clear()
    engine = NativeEngine(language(kind, torch.float32), threads=1)
    first, second = engine.add(rows=2), engine.add(rows=1)
    got: list[list[Tensor]] = [[], []]
    for x, y in zip(inputs(2, 1), inputs(1, 2), strict=True):
        got[0].append(engine.step(x, first))
        got[1].append(engine.step(y, second))
    assert prepared == [first, second]
    for answers, want in zip(got, wanted, strict=True):
        assert torch.equal(torch.stack(answers), want)


@KINDS
def test_rows_that_come_and_go_never_meet_a_stale_call(kind: str, prepared: list[list[int]]) -> None:
    """The slot of a removed row is reused immediately; at the fifth row the memory of all slots moves."""
    want, first = alone(kind, 1, 1), alone_once(kind)
    prepared.clear()
    engine = NativeEngine(language(kind, torch.float32), threads=1)
    kept, other = engine.add(), engine.add()
    answers = [engine.step(inputs(1, 1)[0], kept)]
    engine.step(tokens(1, 7), other)
    for t in range(1, 12):
        engine.remove(other)
        other = engine.add(rows=1 if t < 6 else 4)
        fresh = engine.step(tokens(1, 3).repeat(len(other)), other)
        assert torch.equal(fresh, first.expand_as(fresh)), t
        answers.append(engine.step(inputs(1, 1)[t], kept))
    assert torch.equal(torch.stack(answers), want[:12])
    assert prepared.count(kept) == 2  # at first, and after the memory moved


def alone_once(kind: str) -> Tensor:
    engine = NativeEngine(language(kind, torch.float32), threads=1)
    return engine.step(tokens(1, 3), engine.add())


def test_few_are_kept_and_another_number_of_threads_is_another_call(prepared: list[list[int]]) -> None:
    engine = NativeEngine(language("elu", torch.float32), threads=1)
    rows = engine.add(rows=KEPT + 3)
    for row in rows:
        engine.step(tokens(1), [row])
    assert len(engine._calls) == KEPT
    engine.step(tokens(1), rows[:1])  # the oldest was dropped, and is prepared again
    assert len(prepared) == len(rows) + 1
    engine.threads = 2
    engine.step(tokens(1), rows[:1])
    assert engine._calls.get(rows[:1], 2).fields.threads == 2
    assert len(prepared) == len(rows) + 2
    engine.remove(rows)
    assert len(engine._calls) == 0
