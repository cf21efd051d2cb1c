"""Engines: rows that are added, read, stepped, forked and removed give the outputs of the unsplit model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from linnet.errors import StateError
from linnet.generate import Engine, open_engine
from linnet.models import ModelConfig, ModelState, build
from tests.generate.engines import KINDS, LENGTH, TOLERANCE, VOCAB, close, everywhere, language, opened, tokens, unsplit

OF_ANOTHER = "the state: .* in this model; use the model that produced the state"


def same(a: ModelState, b: ModelState) -> bool:
    """Return whether two states are equal to the last bit."""
    pairs = [(x, y) for s, t in zip(a.layers, b.layers, strict=True) for x, y in zip(s, t, strict=True)]
    return all(torch.equal(x, y) for x, y in [*pairs, (a.position, b.position)] if x is not None)


@everywhere
@pytest.mark.parametrize("kind", KINDS)
def test_any_split_of_any_rows_equals_the_unsplit_model(kind: str, backend: str, dtype: torch.dtype) -> None:
    model, near = language(kind, dtype), close(kind, dtype)
    engine = opened(model, backend)
    a, b, c = tokens(12, 1), tokens(9, 2), tokens(5, 3)
    wanted = [unsplit(model, x) for x in (a, b, c)]
    (first,) = engine.add()
    assert_close(engine.read(a[:7], first), wanted[0][6], **near)
    (second,) = engine.add()
    for t in range(4):  # two rows at different positions, in either order
        assert_close(
            engine.step(torch.stack([b[t], a[7 + t]]), [second, first]),
            torch.stack([wanted[1][t], wanted[0][7 + t]]),
            **near,
        )
    (third,) = engine.add()
    engine.read(b[4:8], second)
    answers = engine.step(torch.stack([a[11], c[0], b[8]]), [first, third, second])
    assert_close(answers, torch.stack([wanted[0][11], wanted[2][0], wanted[1][8]]), **near)
    engine.remove([first, second])
    assert_close(engine.read(c[1:], third), wanted[2][4], **near)
    assert engine.rows == [third]


@everywhere
@pytest.mark.parametrize("kind", KINDS)
def test_forks_restores_and_joined_states_go_on_from_where_they_are(
    kind: str, backend: str, dtype: torch.dtype
) -> None:
    model, near = language(kind, dtype), close(kind, dtype)
    engine = opened(model, backend)
    past, ways = tokens(6, 1), [tokens(3, 2), tokens(3, 3), tokens(3, 4)]
    wanted = [unsplit(model, torch.cat([past, way])) for way in ways]
    (row,) = engine.add()
    engine.read(past, row)
    state = engine.state([row])
    rows = [row, *engine.fork(row), *engine.add(state)]
    for t in range(3):
        answers = engine.step(torch.stack([way[t] for way in ways]), rows)
        assert_close(answers, torch.stack([w[6 + t] for w in wanted]), **near)
    engine.restore(rows[:2], state.select([0, 0]))
    assert engine.state(rows).position.tolist() == [6, 6, 9]
    assert_close(engine.read(ways[2], row), wanted[2][-1], **near)
    assert_close(engine.read(ways[0], rows[1]), wanted[0][-1], **near)
    joined = engine.add(engine.state(rows).select([2, 0]))
    assert len(engine.rows) == 5
    assert engine.state(joined).position.tolist() == [9, 9]


@everywhere
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_answers_are_values(kind: str, backend: str, dtype: torch.dtype) -> None:
    engine = opened(language(kind, dtype), backend)
    rows = engine.add(rows=2)
    answer = engine.step(tokens(2), rows)
    state, kept = engine.state(rows), answer.clone()
    before = state.clone()
    wipe(engine.state(rows))
    assert same(engine.state(rows), before)
    later = engine.step(tokens(2, 1), rows)
    engine.read(tokens(4, 2), rows[0])
    assert same(state, before)
    assert torch.equal(answer, kept)
    engine.restore(rows, state)
    wipe(state)  # changes by the caller do not reach the engine
    assert same(engine.state(rows), before)
    assert_close(engine.step(tokens(2, 1), rows), later, **close(kind, dtype))


@torch.inference_mode()
def wipe(state: ModelState) -> None:
    for layer in state.layers:
        for x in layer:
            if x is not None:
                x.zero_()


BAD: dict[str, tuple[Callable[[Engine, list[int]], Any], str]] = {
    "step of an unknown row": (lambda e, r: e.step(tokens(2), [r[0], 99]), "row 99 is not in the batch; accepted:"),
    "step of a row that left": (lambda e, r: e.step(tokens(1), [0]), "row 0 is not in the batch"),
    "step of a row twice": (lambda e, r: e.step(tokens(2), [r[1], r[1]]), "row 2 is given twice"),
    "token beyond the vocabulary": (
        lambda e, r: e.step(torch.tensor([1, VOCAB]), r[:2]),
        rf"token {VOCAB} at .* is outside the vocabulary of {VOCAB}",
    ),
    "step of no rows": (lambda e, r: e.step(tokens(0), []), "rows is empty; accepted: one or more of"),
    "a row that is no number": (
        lambda e, r: e.step(tokens(1), [0.7]),
        r"rows is \[0.7\]; accepted: a list of numbers",
    ),
    "token below 0": (lambda e, r: e.step(torch.tensor([-1, 1]), r[:2]), "token -1 at"),
    "tokens that are not whole": (lambda e, r: e.step(torch.ones(2), r[:2]), "float32"),
    "too few tokens": (lambda e, r: e.step(tokens(1), r[:2]), r"shape \[1\] for 2 rows"),
    "a matrix of tokens": (lambda e, r: e.step(tokens(2)[:, None], r[:2]), r"\[2, 1"),
    "nothing to read": (lambda e, r: e.read(tokens(0), r[0]), r"shape \[0\]; accepted: 1 or more"),
    "read into an unknown row": (lambda e, r: e.read(tokens(2), 99), "row 99 is not in the batch"),
    "read of a bad token": (lambda e, r: e.read(torch.tensor([1, 2, VOCAB]), r[0]), f"token {VOCAB} at"),
    "leave with an unknown row": (lambda e, r: e.remove([r[0], 99]), "row 99 is not in the batch"),
    "state of an unknown row": (lambda e, r: e.state([r[0], 99]), "row 99 is not in the batch"),
    "restore of too few rows": (lambda e, r: e.restore(r[:2], e.state(r[:1])), "1 rows for 2 rows"),
    "restore of another model's state": (
        lambda e, r: e.restore(r[:1], foreign()),
        OF_ANOTHER,
    ),
    "join of another model's state": (
        lambda e, r: e.add(foreign()),
        OF_ANOTHER,
    ),
    "join of no rows": (lambda e, r: e.add(rows=0), "rows is 0; accepted: a whole number, 1 or more"),
    "no copies": (lambda e, r: e.fork(r[0], 0), "copies is 0; accepted: a whole number, 1 or more"),
    "a fork of nothing": (lambda e, r: e.fork(99), "row 99 is not in the batch"),
}


def foreign() -> ModelState:
    other = build(ModelConfig(d_model=8, n_layers=2, n_heads=2, mixer="softmax", vocab_size=VOCAB))
    return other.backbone.empty_state(1)


@everywhere
@pytest.mark.parametrize("kind", ["elu", "conv, window and rebased", "softmax"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_call_is_one_sentence_and_changes_nothing(case: str, kind: str, backend: str, dtype: torch.dtype) -> None:
    model = language(kind, dtype)
    engine = opened(model, backend)
    rows = engine.add(rows=4)
    pasts = [tokens(3 + i, i) for i in range(4)]
    for row, past in zip(rows, pasts, strict=True):
        engine.read(past, row)
    engine.remove(rows[:1])
    rows, pasts = rows[1:], pasts[1:]
    engine.step(tokens(2, 9), rows[:2])
    before = [engine.state([row]) for row in rows]
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call(engine, rows)
    assert engine.rows == rows
    assert all(same(engine.state([row]), state) for row, state in zip(rows, before, strict=True))
    seen = [*(torch.cat([p, tokens(2, 9)[i : i + 1]]) for i, p in enumerate(pasts[:2])), pasts[2]]
    wanted = [unsplit(model, torch.cat([x, tokens(3, 5)[i : i + 1]]))[-1] for i, x in enumerate(seen)]
    assert_close(engine.step(tokens(3, 5), rows), torch.stack(wanted), **close(kind, dtype))
    assert engine.add() == [4]  # nor was a number used


@everywhere
def test_row_numbers_are_never_used_again(backend: str, dtype: torch.dtype) -> None:
    engine = opened(language("elu", dtype), backend)
    assert engine.add(rows=3) == [0, 1, 2]
    engine.remove([1, 2])
    assert engine.add() == [3]
    assert engine.fork(0, 2) == [4, 5]
    engine.remove([0, 3, 4, 5])
    assert engine.rows == []
    assert engine.add(rows=2) == engine.rows == [6, 7]


@everywhere
def test_the_end_of_learned_positions_stops_one_row_only(backend: str, dtype: torch.dtype) -> None:
    model = language("rebased", dtype)
    engine = opened(model, backend)
    full, other = engine.add(rows=2)
    engine.read(tokens(LENGTH), full)
    engine.read(tokens(5), other)
    before = engine.state([full]), engine.state([other])
    for call in (lambda: engine.step(tokens(2), [other, full]), lambda: engine.read(tokens(2), full)):
        with pytest.raises(
            ValueError, match=f"position ({LENGTH}|{LENGTH + 1}) is beyond the {LENGTH} learned positions"
        ):
            call()
    assert same(engine.state([full]), before[0])
    assert same(engine.state([other]), before[1])
    assert_close(
        engine.step(tokens(1, 7), [other])[0], after(model, tokens(5), tokens(1, 7)), **close("rebased", dtype)
    )


def after(model: Any, *parts: Tensor) -> Tensor:
    return unsplit(model, torch.cat(parts))[-1]


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("task", ["image", "forecast", "classify"])
def test_models_of_other_tasks_step_too(task: str, backend: str) -> None:
    torch.manual_seed(0)
    numbers = {} if task == "image" else {"input_dim": 3, "output_dim": 2, "horizon": 4}
    model = build(ModelConfig(task=task, d_model=16, n_layers=2, n_heads=2, init_std=0.2, vocab_size=7, **numbers))
    engine = opened(model, backend)
    rows = engine.add(rows=2)
    x = torch.randint(7, (2, 6)) if task == "image" else torch.randn(2, 6, 3)
    for row in rows:
        engine.read(x[row, :4], row)
    engine.step(x[:, 4], rows)
    wanted = model(x)[0]
    wanted = wanted if task == "classify" else wanted[:, -1]
    assert_close(engine.step(x[:, 5], rows), wanted.detach(), **TOLERANCE[torch.float32])


def test_what_cannot_be_stepped_is_refused() -> None:
    shape: dict[str, Any] = {"d_model": 16, "n_layers": 1, "n_heads": 2}
    with pytest.raises(ValueError, match="a EncoderDecoder cannot be stepped; accepted: a language"):
        open_engine(build(ModelConfig(task="translate", **shape)))
    with pytest.raises(ValueError, match=r"bidirectional \(causal is False\).*train a causal one"):
        open_engine(build(ModelConfig(task="classify", causal=False, **shape)))


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_dropout_is_off_in_an_engine_and_on_again_after_it(backend: str) -> None:
    model = build(ModelConfig(d_model=16, n_layers=1, n_heads=2, dropout=0.5)).train()
    engine = open_engine(model, backend=backend)
    (row,) = engine.add()
    last, more = engine.read(tokens(4), row), engine.step(tokens(5)[4:], [row])[0]
    assert model.training
    want = unsplit(model.eval(), tokens(5)).detach()
    assert_close(torch.stack([last, more]), want[3:], **TOLERANCE[torch.float32])


def test_errors_are_state_errors() -> None:
    engine = open_engine(language("elu"))
    with pytest.raises(StateError, match="row 0 is not in the batch; accepted: none"):
        engine.remove([0])
