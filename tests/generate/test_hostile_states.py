"""Invalid states are refused in one sentence, and no row of another session changes by a bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.generate import Engine, Session
from linnet.generate.decoder.engine import NativeEngine
from linnet.models import ModelState
from linnet.native.decode import DIGITS
from linnet.ops.checks import LONGEST
from tests.generate.engines import KINDS, VOCAB, language, opened, tokens
from tests.generate.hostile import memory, rewritten, unchanged

BACKENDS = pytest.mark.parametrize("backend", ["torch", "native"])
RECURRENT = ["retnet, gla and mamba2", "delta rules", "mamba and rwkv"]
ENDLESS = ["window", "gated conv and elu", "conv, window and rebased", *RECURRENT]  # no end before LONGEST
Tensors = dict[str, Tensor]


def begun(kind: str, backend: str) -> tuple[Engine, list[Session]]:
    """An engine with three sessions that have read some tokens."""
    model = language(kind, torch.float32)
    engine = opened(model, backend)
    sessions = [Session(model, engine=engine) for _ in range(3)]
    for i, session in enumerate(sessions):
        session.feed(tokens(5 + i, i))
    return engine, sessions


def test_the_bound_is_where_the_table_of_waves_ends() -> None:
    assert 256**DIGITS == LONGEST


@BACKENDS
@pytest.mark.parametrize("position", [2**63 - 2, 2**63 - 1, LONGEST + 1, -1])
@pytest.mark.parametrize("kind", ["conv", "window", "conv, window and rebased"])
def test_a_position_out_of_range_is_refused_everywhere(kind: str, position: int, backend: str, tmp_path: Path) -> None:
    engine, sessions = begun(kind, backend)
    before, path = memory(engine, engine.rows), tmp_path / "a.state"
    state = sessions[0].state._replace(position=torch.tensor([position]))
    sessions[0].save(path)

    def claim(tensors: Tensors, meta: dict[str, str]) -> None:
        tensors["position"], meta["tokens"] = torch.tensor([position]), str(min(max(position, 0), LONGEST))
        del tensors["history"]

    rewritten(path, claim)
    for call in (
        lambda: Session.load(path, engine.model, engine=engine).feed([1, 2, 3]),
        lambda: ModelState.load(path),
        lambda: engine.restore([1], state),
        lambda: engine.add(state),
        lambda: engine.model.step(torch.tensor([1]), state),
        lambda: engine.model(torch.tensor([[1, 2]]), state),
        lambda: state.save(tmp_path / "b.state"),
    ):
        with pytest.raises(StateError, match=rf"position {position} is out of range; accepted: 0 to {LONGEST}"):
            call()
    assert unchanged(before, memory(engine, engine.rows))


@BACKENDS
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_stream_ends_at_the_bound_and_no_row_moves(kind: str, backend: str) -> None:
    engine, sessions = begun(kind, backend)
    state = sessions[0].state
    if "window" in kind:  # as full as a long stream's
        sessions[0].feed(tokens(5))
        state = sessions[0].state
    engine.restore([0], state._replace(position=torch.tensor([LONGEST - 2])))
    for token in (1, 2):
        answers = engine.step(torch.tensor([token, token]), [1, 0])
        assert bool(torch.isfinite(answers).all())
    before = memory(engine, engine.rows)
    for call in (lambda: engine.step(torch.tensor([3, 3]), [1, 0]), lambda: engine.read(torch.tensor([3, 4]), 0)):
        with pytest.raises(StateError, match=f"has seen {LONGEST} tokens and cannot continue; .*begin a new stream"):
            call()
    assert unchanged(before, memory(engine, engine.rows))
    engine.step(torch.tensor([3, 3]), [1, 2])
    assert engine.state([1]).position.tolist() == [9]


@pytest.mark.parametrize("kind", ["elu", "gated conv and elu", "conv, window and rebased", *RECURRENT])
def test_both_engines_agree_up_to_the_bound(kind: str) -> None:
    model, answers = language(kind, torch.float32), []
    for backend in ("torch", "native"):
        engine = opened(model, backend)
        (row,) = engine.add()
        engine.read(tokens(12), row)
        engine.restore([row], engine.state([row])._replace(position=torch.tensor([LONGEST - 3])))
        answers.append(torch.stack([engine.step(torch.tensor([i]), [row])[0] for i in range(3)]))
    torch.testing.assert_close(*answers, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_native_code_refuses_before_it_writes(kind: str) -> None:
    """The library checks every row itself, whatever passed the earlier checks."""
    engine, _ = begun(kind, "native")
    assert isinstance(engine, NativeEngine)
    slots = engine._slots
    for position in (2**63 - 2, -1, LONGEST):
        kept = int(slots.positions[engine._rows[1]])
        slots.positions[engine._rows[1]] = position
        if engine.packed.cache_floats:  # no cache is that long: the library has to notice that there is no room
            slots.make_room = lambda slots: 2  # type: ignore[method-assign]
        before = memory(engine, engine.rows)
        with pytest.raises((ValueError, RuntimeError)):
            engine.step(torch.tensor([1, 2, 3]), [0, 1, 2])
        assert unchanged(before, memory(engine, engine.rows))
        slots.positions[engine._rows[1]] = kept


def _edit(name: str, value: Any) -> Callable[[Tensors, dict[str, str]], None]:
    def change(tensors: Tensors, meta: dict[str, str]) -> None:
        tensors[name] = value(tensors[name])

    return change


FILES: dict[str, tuple[str, Callable[[Tensors, dict[str, str]], None], str]] = {
    "a token beyond the vocabulary": ("elu", _edit("history", lambda x: x + VOCAB), f"accepted: 0 to {VOCAB - 1}"),
    "a token below 0": ("elu", _edit("history", lambda x: -2 - x), "history has token -"),
    "a token missing": ("elu", _edit("history", lambda x: x[:, :-1]), r"history is .*\[1, 4\]; accepted: .*\[1, 5\]"),
    "-1 among the tokens": ("elu", _edit("history", lambda x: x.index_fill(1, torch.tensor(2), -1)), "token -1"),
    "one token too many": ("elu", _edit("history", lambda x: torch.cat([x, x[:, :1]], 1)), r"history is .*\[1, 6\]"),
    "history of floats": ("elu", _edit("history", lambda x: x.double()), "history is torch.float64"),
    "history without rows": ("elu", _edit("history", lambda x: x[0]), r"history is torch.int64 \[5\]"),
    "an answer of whole numbers": ("elu", _edit("answer", lambda x: x.long()), "answer is torch.int64"),
    "an answer without rows": ("elu", _edit("answer", lambda x: x[0]), rf"answer is torch.float32 \[{VOCAB}\]"),
    "an answer of another width": ("elu", _edit("answer", lambda x: x[:, :-1]), f"answer is .*{VOCAB - 1}.*; accepted"),
    "an answer for two rows": ("elu", _edit("answer", lambda x: x.repeat(2, 1)), "one row for each of 1"),
    "a position of floats": ("elu", _edit("position", lambda x: x.double()), "position is torch.float64"),
    "a position too many": ("elu", _edit("position", lambda x: x.repeat(2)), "layer 0 has 1 rows, position 2"),
    "a window with gaps": ("window", _edit("0.mask", lambda x: ~x.cumsum(1).gt(1)), "the window of layer 0 has gaps"),
    "a window of nothing": ("window", _edit("1.mask", lambda x: x & False), "layer 1 holds 0 tokens of row 0"),
    "a position the cache does not have": (
        "softmax", _edit("position", lambda x: x + 1), "history is|layer 0 holds 5 tokens of row 0, which has seen 6"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_what_a_session_file_says_is_checked(case: str, tmp_path: Path) -> None:
    kind, change, message = FILES[case]
    engine, sessions = begun(kind, "torch")
    path = tmp_path / "a.state"
    sessions[0].save(path)
    Session.load(path, engine.model, engine=engine).close()

    def both(tensors: Tensors, meta: dict[str, str]) -> None:
        change(tensors, meta)
        meta["tokens"] = "0"  # not recorded

    rewritten(path, both)
    before = memory(engine, engine.rows)
    with pytest.raises(StateError, match=message):
        Session.load(path, engine.model, engine=engine)
    assert unchanged(before, memory(engine, engine.rows))


@pytest.mark.parametrize("text", ["-1", "1_0", " 5", "+5", "٣", "9" * 5000, str(LONGEST + 1), "5.0", ""])
def test_a_count_of_tokens_is_digits_in_bounds(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    begun("elu", "torch")[1][0].save(path)
    rewritten(path, lambda tensors, meta: meta.update(tokens=text))
    with pytest.raises(StateError, match="damaged header"):
        ModelState.load(path)


STATES: dict[str, tuple[str, Callable[[ModelState], Any], str]] = {
    "no state at all": ("elu", lambda s: tuple(s), "the state is a tuple; accepted: a ModelState"),
    "positions as a list": ("elu", lambda s: s._replace(position=[5]), "position is a list"),
    "positions of 32 bits": ("elu", lambda s: s._replace(position=s.position.int()), "position is torch.int32"),
    "rows that differ": ("elu", lambda s: s._replace(position=torch.tensor([5, 5])), "layer 0 has 1 rows, position 2"),
    "a layer of numbers": ("elu", lambda s: s._replace(layers=(s.layers[0], 3)), "state class of layer 1 is 'int'"),
    "a cache too short": ("softmax", lambda s: s._replace(position=s.position + 9), "holds 5 tokens of row 0"),
    "sums of whole numbers": (
        "elu",
        lambda s: s._replace(layers=(s.layers[0]._replace(s=s.layers[0].s.long()), s.layers[1])),
        "layer 0: State has s .*torch.int64",
    ),
    "a mask of numbers": (
        "window",
        lambda s: s._replace(layers=(s.layers[0]._replace(mask=s.layers[0].mask.long()), s.layers[1])),
        "accepted: a bool mask",
    ),
}


@BACKENDS
@pytest.mark.parametrize("case", STATES)
def test_what_an_engine_is_given_is_checked(case: str, backend: str) -> None:
    kind, change, message = STATES[case]
    engine, sessions = begun(kind, backend)
    bad, before = change(sessions[0].state), memory(engine, engine.rows)
    for call in (lambda: engine.restore([0], bad), lambda: engine.add(bad)):
        with pytest.raises(StateError, match=message):
            call()
    assert unchanged(before, memory(engine, engine.rows))


@pytest.mark.parametrize("kind", ["conv", "window", "softmax", *RECURRENT])
def test_a_float64_state_enters_the_native_engine_rounded(kind: str) -> None:
    engine, sessions = begun(kind, "native")
    state = sessions[1].state
    engine.restore([0], state.to(dtype=torch.float64))
    restored = engine.state([0])
    pairs = [pair for layers in zip(state.layers, restored.layers, strict=True) for pair in zip(*layers, strict=True)]
    assert all(a is b is None or torch.equal(a, b) for a, b in pairs)
