"""States as values: rows selected and joined, moved, cut from the graph, checked; never altered behind the caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from linnet.errors import StateError
from linnet.ops.checks import check_form
from linnet.ops.state import KINDS, AnyState, BaseState, ConvState, State, check_state, join_states
from linnet.ops.state_file import read_header
from tests.ops.states import ALL, B, E, F, H, V, cache, conv, linear, same, window


@pytest.mark.parametrize("state", ALL)
def test_nbytes_counts_every_tensor(state: AnyState) -> None:
    assert state.nbytes == sum(len(x.contiguous().view(-1).view(torch.uint8)) for x in state if x is not None)


@pytest.mark.parametrize("state", ALL)
@pytest.mark.parametrize("rows", [[2, 0, 0], torch.tensor([1]), slice(1, None), slice(None, None, -1), [], [-1]])
def test_select_gives_new_rows(state: AnyState, rows: Any) -> None:
    index = list(range(B))[rows] if isinstance(rows, slice) else [int(i) for i in rows]
    chosen = state.select(rows)
    before = state.clone()
    for got, whole in zip(chosen, state, strict=True):
        assert (got is None) == (whole is None)
        if got is not None:
            assert torch.equal(got, torch.stack([whole[i] for i in index]) if index else whole[:0])
            got.zero_()
    assert same(state, before)


@pytest.mark.parametrize("rows", [[3], [-4], torch.tensor([0, 9]), [0.5], [True, False, True], [[0]], 0, torch.eye(3)])
def test_select_refuses_rows_that_are_not_there(rows: Any) -> None:
    with pytest.raises(StateError, match=r"accepted: .*(0 to 2|list or 1-d integer)"):
        linear().select(rows)


def test_to_detach_clone() -> None:
    state = linear()
    assert state.to(dtype=torch.float64).s.dtype == torch.float64
    assert state.to("meta").z.device.type == "meta"
    moved = cache().to(dtype=torch.bfloat16)
    assert (moved.k.dtype, moved.mask.dtype) == (torch.bfloat16, torch.bool)
    with pytest.raises(StateError, match=r"bfloat16.*accepted: one dtype out of torch.float32, torch.float64"):
        state.to(dtype=torch.bfloat16)
    grown = State(*(x.requires_grad_() for x in linear()))
    assert not any(x.requires_grad for x in grown.detach())
    twin = grown.clone()
    assert same(twin, grown)
    assert twin.s.data_ptr() != grown.s.data_ptr()


def test_a_conv_state_of_any_floating_dtype_is_whole() -> None:
    assert conv().to(dtype=torch.bfloat16).x.dtype == torch.bfloat16
    with pytest.raises(StateError, match=r"ConvState has x \[3, 2, 7\] torch.int64 on cpu; accepted: one dtype"):
        check_form(ConvState(conv().x.long()), ConvState)
    with pytest.raises(StateError, match=r"ConvState has x \[3, 7\] .*; accepted: x \[B,W,E\]"):
        check_form(ConvState(conv().x[:, 0]), ConvState)
    with pytest.raises(StateError, match=r"ConvState.x is a list; accepted: a torch.Tensor"):
        check_form(ConvState([0.0]), ConvState)
    joined = join_states([conv(), conv().select([0])])
    assert joined.x.shape == (B + 1, 2, E)


@pytest.fixture
def ring() -> Iterator[Any]:
    """A state class that the library does not know, defined in one place."""

    class RingState(BaseState, NamedTuple("RingState", [("x", Tensor), ("full", Tensor)])):
        __slots__ = ()
        kind = "ring"
        axes: ClassVar = {"x": "B,W,E", "full": "B,W"}
        dtypes = (torch.float32, torch.bfloat16)
        flags = ("full",)

    yield RingState
    del KINDS["ring"]


def test_a_new_state_is_one_class(ring: Any, tmp_path: Path) -> None:
    state = ring(torch.randn(B, 2, E), torch.ones(B, 2, dtype=torch.bool))
    x, full = state
    assert state.x is x
    assert state.nbytes == x.numel() * 4 + full.numel()
    joined = join_states([state.select([2, 0]), state.detach().clone()])
    assert torch.equal(joined.x, torch.cat([x[[2, 0]], x]))
    assert joined.rows == B + 2
    assert state.to(dtype=torch.bfloat16).x.dtype == torch.bfloat16
    with pytest.raises(StateError, match=r"one dtype out of torch.float32, torch.bfloat16"):
        state.to(dtype=torch.float64)
    with pytest.raises(StateError, match=r"RingState has .*; accepted: a bool full \[B,W\] = \[3, 2\]"):
        check_form(ring(x, full[:, :1]), ring)
    with pytest.raises(AttributeError):
        state.x = x
    state.save(tmp_path / "ring.state")
    assert read_header(tmp_path / "ring.state").layers[0].kind == "ring"
    again = ring.load(tmp_path / "ring.state", expect=[state])
    assert torch.equal(again.x, x)
    assert torch.equal(again.full, full)
    mapped = tree_map(lambda y: y[:1], state)
    assert isinstance(mapped, ring)
    assert mapped.rows == 1


def test_gradients_flow_through_select_and_join() -> None:
    state = State(*(x.requires_grad_() for x in linear()))
    joined = join_states([state.select([0]), state.select([0, 2])])
    (joined.s.sum() + joined.z.sum()).backward()
    assert state.s.grad[:, 0, 0, 0].tolist() == state.z.grad[:, 0, 0].tolist() == [2, 0, 1]


def test_join_pads_caches_on_the_right() -> None:
    short, long = cache(2, padded=False), cache(4, padded=False)
    joined = join_states([short, long])
    assert joined.mask[:, 2:].tolist() == [[False, False]] * B + [[True, True]] * B
    assert torch.equal(joined.k[:B, :2], short.k)
    assert torch.equal(joined.v[B:], long.v)
    assert join_states([short, short]).mask is None
    with pytest.raises(StateError, match="cannot join"):
        join_states([short, window()])
    with pytest.raises(StateError, match="one or more"):
        join_states([])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (linear().select([0]), r"shape \[1, 2, 6, 4\]; accepted here: .* \[3, 2, 6, 4\]"),
        (linear().to("meta"), "on meta, the inputs on cpu"),
        (
            State(linear().s.half(), linear().z.half()),
            "float16.*accepted: one dtype out of torch.float32, torch.float64",
        ),
        (State(linear().s, linear().z.double()), "accepted: one dtype"),
        (State(linear().s.long(), linear().z.long()), "accepted: one dtype"),
        (State(linear().s, linear().z[:1]), r"accepted: s \[B,H,F,V\] and z \[B,H,F\]"),
        (State(linear().s, linear().z.to("meta")), "accepted: one device"),
        (cache(), "a KVState; accepted here: State"),
        (tuple(linear()), "a tuple; accepted here: State"),
    ],
)
def test_check_state_refuses(state: Any, message: str) -> None:
    sizes = {"batch": B, "heads": H, "feature_dim": F, "value_dim": V, "device": "cpu"}
    check_state(linear(), **sizes)
    check_state(linear(torch.float64), **sizes)
    with pytest.raises(StateError, match=message):
        check_state(state, **sizes)
