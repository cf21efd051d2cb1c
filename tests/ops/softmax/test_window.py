"""Sliding-window attention against a dense float64 reference: outputs, gradients, hand-over, padding, packing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linnet.errors import StateError
from linnet.ops.softmax import window as sliding_window
from linnet.ops.softmax.full import softmax_attention
from linnet.ops.softmax.window import sliding_window_attention, sliding_window_attention_step, state_bytes
from linnet.ops.state import KVState, WindowState

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}
H, D, V = 2, 3, 4
WIDTHS = [D, V]  # value widths: torch has one kernel for V = D and another for the rest


def draw(batch: int, length: int, *, width: int = V, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = [(batch, length, H, D), (batch, length, H, D), (batch, length, H, width)]
    return [torch.randn(x, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for x in shapes]


def padding(kind: str, batch: int, length: int) -> Tensor | None:
    """Row b has about 2 b + 1 padded tokens, so that rows differ."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    for b in range(batch):
        n = length if kind == "all" else min(2 * b + 1, length)
        start = {"left": 0, "right": length - n, "middle": (length - n) // 2, "all": 0, "none": length}[kind]
        mask[b, start : start + n] = False
    return None if kind == "none" else mask


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, window: int) -> Tensor:
    """Row by row with the padding cut out: a dense softmax over T x T scores with everything but the band at -inf."""
    q, k, v = q.double(), k.double(), v.double()
    out = q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + k.sum() + v.sum())  # in the graph, even when empty
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[1]) if mask is None else mask[b].nonzero()[:, 0]
        if len(real):
            scores = torch.einsum("thd,shd->hts", q[b, real], k[b, real]) * D**-0.5
            behind = torch.arange(len(real))[:, None] - torch.arange(len(real))  # [T,T]: how far back the key is
            band = (behind >= 0) & (behind < window)
            weight = scores.masked_fill(~band, float("-inf")).softmax(-1)
            out = out.index_put((torch.tensor(b), real), torch.einsum("hts,shv->thv", weight, v[b, real]))
    return out


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * weight).sum(), inputs, materialize_grads=True, retain_graph=True)


def check(out: Tensor, want: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(out, want, **EXACT)
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


def in_pieces(inputs: list[Tensor], mask: Tensor | None, cuts: list[int], window: int) -> tuple[Tensor, WindowState]:
    """The whole sequence with the state handed on at every cut."""
    outs, state = [], None
    for a, b in pairwise([0, *sorted(cuts), inputs[0].shape[1]]):
        part = None if mask is None else mask[:, a:b]
        out, state = sliding_window_attention(
            *(x[:, a:b] for x in inputs), window=window, mask=part, initial_state=state, output_final_state=True
        )
        outs.append(out)
    assert state is not None
    return torch.cat(outs, dim=1), state


@pytest.mark.parametrize("window", [1, 2, 5, 64, 65, 200])
@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 129, 193])
@pytest.mark.parametrize("width", WIDTHS)
def test_equals_reference(width: int, length: int, window: int) -> None:
    inputs = draw(2, length, width=width)
    out, state = sliding_window_attention(*inputs, window=window)
    assert state is None
    check(out, reference(*inputs, None, window), inputs)


@pytest.mark.parametrize("kind", ["left", "right", "middle", "all"])
@pytest.mark.parametrize(("length", "window"), [(1, 1), (9, 3), (70, 4), (130, 66)])
def test_padding_is_as_if_it_were_not_there(length: int, window: int, kind: str) -> None:
    inputs, mask = draw(3, length), padding(kind, 3, length)
    out, _ = sliding_window_attention(*inputs, window=window, mask=mask)
    check(out, reference(*inputs, mask, window), inputs)


def test_left_padded_row_equals_the_row_without_padding() -> None:
    inputs = draw(1, 9)
    padded = [torch.cat([x.new_full((1, 4, *x.shape[2:]), float("nan")), x], dim=1) for x in inputs]
    mask = torch.arange(13)[None] >= 4
    out, state = sliding_window_attention(*padded, window=3, mask=mask, output_final_state=True)
    alone, kept = sliding_window_attention(*inputs, window=3, output_final_state=True)
    torch.testing.assert_close(out[:, 4:], alone, **EXACT)
    for got, want in zip(state, kept, strict=True):
        assert torch.equal(got, want)
    assert all(x.isfinite().all() for x in gradients(out, inputs))


def test_wide_window_is_softmax_attention() -> None:
    inputs, mask = draw(2, 30), padding("middle", 2, 30)
    out, _ = sliding_window_attention(*inputs, window=30, mask=mask, scale=0.3)
    torch.testing.assert_close(out, softmax_attention(*inputs, mask=mask, scale=0.3)[0], **EXACT)


@pytest.mark.parametrize("kind", ["none", "middle"])
def test_float32(kind: str) -> None:
    inputs, mask = draw(2, 150, dtype=torch.float32), padding(kind, 2, 150)
    out, _ = in_pieces(inputs, mask, [70], 5)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), reference(*inputs, mask, 5), **SINGLE)


@settings(max_examples=100)
@given(st.data())
def test_any_split_hands_the_state_on(data: st.DataObject) -> None:
    length, window = data.draw(st.integers(0, 14)), data.draw(st.integers(1, 8))
    cuts = data.draw(st.lists(st.integers(0, length), max_size=4))
    bits = data.draw(st.none() | st.lists(st.booleans(), min_size=2 * length, max_size=2 * length))
    mask = None if bits is None else torch.tensor(bits, dtype=torch.bool).reshape(2, length)
    inputs = draw(2, length, seed=length, width=data.draw(st.sampled_from(WIDTHS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_window, "MIN_BLOCK", data.draw(st.integers(1, 5)))  # many blocks in a short sequence
        out, state = in_pieces(inputs, mask, cuts, window)
    check(out, reference(*inputs, mask, window), inputs)
    assert state.k.shape == (2, window - 1, H, D)


def test_steps_equal_parallel_after_a_padded_prompt() -> None:
    inputs, mask = draw(3, 12), padding("right", 3, 6)
    whole = torch.cat([mask, torch.ones(3, 6, dtype=torch.bool)], dim=1)
    prompt, state = in_pieces([x[:, :6] for x in inputs], mask, [], 4)
    steps = []
    for t in range(6, 12):
        out, state = sliding_window_attention_step(*(x[:, t] for x in inputs), state, window=4)
        steps.append(out)
    check(torch.cat([prompt, torch.stack(steps, dim=1)], dim=1), reference(*inputs, whole, 4), inputs)


@pytest.mark.parametrize("window", [1, 3])
def test_first_step_needs_no_state(window: int) -> None:
    inputs = draw(2, 1)
    out, state = sliding_window_attention_step(*(x[:, 0] for x in inputs), window=window)
    torch.testing.assert_close(out, inputs[2][:, 0], **EXACT)
    assert state.k.shape == (2, window - 1, H, D)


@pytest.mark.parametrize("lengths", [[3, 0, 70, 1], [2, 2], [0]])
def test_packed_equals_each_alone_and_resumes(lengths: list[int]) -> None:
    total, offsets = sum(lengths), [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    inputs, more = draw(1, total), draw(1, total, seed=1)
    mask = torch.ones(1, total, dtype=torch.bool)
    mask[:, 1:2] = False
    options: dict[str, Any] = {"window": 4, "cu_seqlens": torch.tensor(offsets), "output_final_state": True}
    out, state = sliding_window_attention(*inputs, mask=mask, **options)
    next_out, state = sliding_window_attention(*more, initial_state=state, **options)
    assert state.k.shape[0] == len(lengths)
    for a, b in pairwise(offsets):
        both = [torch.cat([x[:, a:b], y[:, a:b]], dim=1) for x, y in zip(inputs, more, strict=True)]
        real = torch.cat([mask[:, a:b], torch.ones_like(mask[:, a:b])], dim=1)
        got = torch.cat([out[:, a:b], next_out[:, a:b]], dim=1)
        check(got, reference(*both, real, 4), inputs + more)


@pytest.mark.parametrize("kind", ["none", "middle"])
def test_the_future_never_changes_the_past(kind: str) -> None:
    inputs, mask = draw(2, 140), padding(kind, 2, 140)
    changed = [torch.cat([x[:, :100], -3 * x[:, 100:]], dim=1) for x in inputs]
    out, other = (sliding_window_attention(*x, window=7, mask=mask)[0] for x in (inputs, changed))
    assert torch.equal(out[:, :100], other[:, :100])
    assert not torch.equal(out[:, 100:], other[:, 100:])


@pytest.mark.parametrize("kind", ["none", "left"])
def test_a_forked_state_is_never_altered(kind: str) -> None:
    inputs, mask = [x.detach() for x in draw(2, 8)], padding(kind, 2, 8)
    _, state = sliding_window_attention(*inputs, window=4, mask=mask, output_final_state=True)
    kept = state.clone()
    sliding_window_attention(*inputs, window=4, initial_state=state, output_final_state=True)
    _, fork = sliding_window_attention_step(*(x[:, 4] for x in inputs), state, window=4)
    for x in (*fork, *inputs):
        x.zero_()
    for got, want in zip(state, kept, strict=True):
        assert torch.equal(got, want)


def test_memory_is_linear_in_time() -> None:
    """No tensor that autograd keeps has more than T (2 window + 64) numbers per head."""
    sizes: list[int] = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    inputs = draw(1, 2048, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        sliding_window_attention(*inputs, window=16)
    assert sizes
    assert max(sizes) <= H * 2048 * (2 * 16 + 64)


def test_state_bytes_do_not_grow() -> None:
    sizes = {"window": 6, "heads": H, "head_dim": D, "value_dim": V}
    for length in (0, 3, 50):
        inputs = draw(2, length, dtype=torch.float32)
        _, state = sliding_window_attention(*inputs, window=6, output_final_state=True)
        assert state.nbytes == 2 * state_bytes(length, **sizes) == 2 * 5 * (H * (D + V) * 4 + 1)


KEYS = torch.zeros(2, 4, H, D)
VALUES = torch.zeros(2, 4, H, V)
REAL = torch.ones(2, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 0}, "window is 0; accepted: a whole number"),
        ({"window": 2.0}, r"window is 2\.0"),
        ({"window": True}, "window is True"),
        ({"causal": False}, "use softmax_attention"),
        ({"q": KEYS.int()}, "q has dtype torch.int32"),
        ({"q": KEYS[:, :2]}, "as many queries as keys"),
        ({"v": VALUES[:, :, :1]}, "k and v must agree"),
        ({"mask": torch.full((2, 4), float("nan"))}, r"with NaN in it; .* use mask.nan_to_num\(\).bool\(\)"),
        ({"cu_seqlens": torch.tensor([0, 8])}, "batch must be 1"),
        ({"scale": float("inf")}, "scale is inf"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    arguments = {"q": KEYS, "k": KEYS, "v": VALUES, "window": 5} | change
    with pytest.raises(ValueError, match=message):
        sliding_window_attention(**arguments)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (KVState(KEYS, VALUES), "a KVState; accepted here: WindowState"),
        (WindowState(KEYS[:, 1:], VALUES[:, 1:], REAL[:, 1:]), "of window 4; accepted here: window 5"),
        (WindowState(KEYS[:, :, :1], VALUES[:, :, :1], REAL), "initial_state.k has shape"),
        (WindowState(KEYS.double(), VALUES.double(), REAL), "torch.float64 on cpu but k is torch.float32"),
        (WindowState(KEYS.to("meta"), VALUES.to("meta"), REAL.to("meta")), "on meta"),
        (WindowState(KEYS, VALUES, REAL.float()), "accepted: a bool mask"),
        (WindowState(KEYS, VALUES, None), "WindowState.mask is a NoneType"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        sliding_window_attention(KEYS, KEYS, VALUES, window=5, initial_state=state)
    with pytest.raises(StateError, match=message):
        sliding_window_attention_step(KEYS[:, 0], KEYS[:, 0], VALUES[:, 0], state, window=5)
