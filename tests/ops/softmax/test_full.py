"""Softmax attention against a dense float64 reference: outputs, gradients, hand-over, padding, packing, bad input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from linnet.errors import StateError
from linnet.ops.softmax import full as softmax
from linnet.ops.softmax.full import softmax_attention, softmax_attention_step, state_bytes
from linnet.ops.state import KVState, WindowState

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}
H, D, V = 2, 3, 4
PADDINGS = ["none", "left", "right", "middle", "all"]

WIDTHS = [D, V]  # value widths: torch has one kernel for V = D and another for the rest


def draw(
    batch: int,
    length: int,
    *,
    keys: int | None = None,
    width: int = V,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = [(batch, length, H, D), (batch, keys or length, H, D), (batch, keys or length, H, width)]
    return [torch.randn(x, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for x in shapes]


def padding(kind: str, batch: int, length: int) -> Tensor | None:
    """Row b has about b + 1 padded tokens, so that rows differ."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    for b in range(batch):
        n = length if kind == "all" else min(b + 1, length)
        start = {"left": 0, "right": length - n, "middle": (length - n) // 2, "all": 0, "none": length}[kind]
        mask[b, start : start + n] = False
    return None if kind == "none" else mask


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Row by row with the padding cut out, token by token, the sums as written."""
    q, k, v = q.double(), k.double(), v.double()
    out = q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + k.sum() + v.sum())  # in the graph, even when empty
    for b in range(q.shape[0]):
        keys = [s for s in range(k.shape[1]) if mask is None or mask[b, s]]
        for t in keys if causal else range(q.shape[1]):
            seen = [s for s in keys if s <= t or not causal]
            if seen:
                weight = (scale * (q[b, t] * k[b, seen]).sum(-1)).exp()  # [S,H]
                value = (weight[..., None] * v[b, seen]).sum(0) / weight.sum(0)[:, None]
                out = out.index_put((torch.tensor(b), torch.tensor(t)), value)
    return out


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * weight).sum(), inputs, materialize_grads=True)


def in_pieces(inputs: list[Tensor], mask: Tensor | None, cuts: list[int], attend: Callable) -> tuple[Tensor, KVState]:
    """The whole sequence with the state handed on at every cut."""
    outs, state, edges = [], None, [0, *sorted(cuts), inputs[0].shape[1]]
    for a, b in itertools.pairwise(edges):
        part = None if mask is None else mask[:, a:b]
        out, state = attend(*(x[:, a:b] for x in inputs), mask=part, initial_state=state, output_final_state=True)
        outs.append(out)
    return torch.cat(outs, dim=1), state


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("width", WIDTHS)
def test_equals_reference(width: int, length: int, kind: str, causal: bool) -> None:
    inputs, mask = draw(3, length, width=width), padding(kind, 3, length)
    want = reference(*inputs, mask, causal, 0.7)
    out, state = softmax_attention(*inputs, causal=causal, mask=mask, scale=0.7)
    assert state is None
    torch.testing.assert_close(out, want, **EXACT)
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("kind", ["none", "left"])
def test_float32_and_default_scale(kind: str) -> None:
    inputs, mask = draw(2, 20, dtype=torch.float32), padding(kind, 2, 20)
    out, _ = softmax_attention(*inputs, mask=mask)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), reference(*inputs, mask, True, D**-0.5), **SINGLE)


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (7, 2), (3, 3)])
@pytest.mark.parametrize("width", WIDTHS)
def test_cross_attention_answers_every_query_and_zero_without_keys(width: int, queries: int, keys: int) -> None:
    inputs = draw(2, queries, keys=keys, width=width)
    mask = torch.ones(2, keys, dtype=torch.bool)
    mask[0, 0], mask[1] = False, False
    out, _ = softmax_attention(*inputs, causal=False, mask=mask)
    want = reference(*inputs, mask, False, D**-0.5)
    torch.testing.assert_close(out, want, **EXACT)
    assert (out[1] == 0).all()
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("causal", [True, False])
def test_torch_is_never_asked_for_a_row_without_keys(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What such a row gives is not the same in every version and on every device: here it is never left to torch."""
    seen: list[Tensor] = []

    def spy(*args: Tensor, attn_mask: Tensor, **kwargs: Any) -> Tensor:
        seen.append(attn_mask)
        return sdpa(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(softmax, "sdpa", spy)
    softmax_attention(
        *draw(3, 6), causal=causal, mask=torch.eye(6, dtype=torch.bool)[[5, 0, 5]] & (torch.arange(6) < 5)
    )
    assert len(seen) == 1
    assert seen[0].any(dim=-1).all()


def test_junk_under_the_mask_of_a_state_is_not_an_answer() -> None:
    q, k, v = draw(2, 3)
    junk = KVState(k, v, torch.zeros(2, 3, dtype=torch.bool))
    out, _ = softmax_attention(q, k[:, :0], v[:, :0], causal=False, initial_state=junk)
    assert (out == 0).all()


def test_no_keys_at_all_gives_zero() -> None:
    q, k, v = draw(2, 3, keys=1)
    out, state = softmax_attention(q, k[:, :0], v[:, :0], causal=False, output_final_state=True)
    assert out.shape == (2, 3, H, V)
    assert (out == 0).all()
    assert state is not None
    assert state.k.shape == (2, 0, H, D)


@pytest.mark.parametrize("causal", [True, False])
def test_nan_in_the_padding_is_never_read(causal: bool) -> None:
    inputs, mask = draw(3, 8), padding("middle", 3, 8)
    clean, _ = softmax_attention(*inputs, causal=causal, mask=mask)
    broken = [x.detach().masked_fill(~mask[:, :, None, None], float("nan")).requires_grad_() for x in inputs]
    broken[0] = broken[0] if causal else inputs[0]  # bidirectional queries are all real
    out, _ = softmax_attention(*broken, causal=causal, mask=mask)
    torch.testing.assert_close(out, clean, rtol=0, atol=0)
    assert all(x.isfinite().all() for x in gradients(out, broken))


@settings(max_examples=100)
@given(st.data())
def test_any_split_hands_the_state_on(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 12))
    cuts = data.draw(st.lists(st.integers(0, length), max_size=4))
    bits = data.draw(st.none() | st.lists(st.booleans(), min_size=2 * length, max_size=2 * length))
    mask = None if bits is None else torch.tensor(bits, dtype=torch.bool).reshape(2, length)
    inputs = draw(2, length, seed=length, width=data.draw(st.sampled_from(WIDTHS)))
    want = reference(*inputs, mask, True, D**-0.5)
    out, state = in_pieces(inputs, mask, cuts, softmax_attention)
    torch.testing.assert_close(out, want, **EXACT)
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)
    assert state.k.shape[1] == length
    assert (state.mask is None) == (mask is None)


@pytest.mark.parametrize("kind", ["none", "right", "middle"])
def test_mask_is_written_in_blocks_of_queries(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "BLOCK", 4)
    inputs, mask = draw(2, 15), padding(kind, 2, 15)
    out, _ = in_pieces(inputs, mask, [2], softmax_attention)
    torch.testing.assert_close(out, reference(*inputs, mask, True, D**-0.5), **EXACT)


def test_steps_equal_parallel_after_a_padded_prompt() -> None:
    inputs, mask = draw(3, 9), padding("right", 3, 5)
    whole = torch.cat([mask, torch.ones(3, 4, dtype=torch.bool)], dim=1)
    outs, state = in_pieces([x[:, :5] for x in inputs], mask, [], softmax_attention)
    steps = []
    for t in range(5, 9):
        out, state = softmax_attention_step(*(x[:, t] for x in inputs), state)
        steps.append(out)
    got = torch.cat([outs, torch.stack(steps, dim=1)], dim=1)
    torch.testing.assert_close(got, reference(*inputs, whole, True, D**-0.5), **EXACT)


def test_first_step_needs_no_state() -> None:
    inputs = draw(2, 1)
    out, state = softmax_attention_step(*(x[:, 0] for x in inputs), scale=2.0)
    torch.testing.assert_close(out, inputs[2][:, 0], **EXACT)
    assert state.k.shape == (2, 1, H, D)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[3, 0, 5, 1], [2, 2], [0]])
def test_packed_equals_each_alone_and_resumes(lengths: list[int], causal: bool) -> None:
    total, offsets = sum(lengths), [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    inputs, more = draw(1, total), draw(1, total, seed=1)
    mask = torch.ones(1, total, dtype=torch.bool)
    mask[:, :1] = False
    options = {"cu_seqlens": torch.tensor(offsets), "causal": causal, "output_final_state": True}
    out, state = softmax_attention(*inputs, mask=mask, **options)
    next_out, state = softmax_attention(*more, initial_state=state, **options)
    assert state.k.shape[0] == len(lengths)
    for a, b in itertools.pairwise(offsets):
        first, second = [x[:, a:b] for x in inputs], [x[:, a:b] for x in more]
        alone = reference(*first, mask[:, a:b], causal, D**-0.5)
        torch.testing.assert_close(out[:, a:b], alone, **EXACT)
        if causal:
            joined = [torch.cat(pair, dim=1) for pair in zip(first, second, strict=True)]
            real = torch.cat([mask[:, a:b], torch.ones_like(mask[:, a:b])], dim=1)
            alone = reference(*joined, real, True, D**-0.5)[:, b - a :]
            torch.testing.assert_close(next_out[:, a:b], alone, **EXACT)


def test_padding_of_packed_caches_does_not_pile_up() -> None:
    _, state = softmax_attention(*draw(1, 5), cu_seqlens=[0, 4, 5], output_final_state=True)
    assert state.mask.tolist() == [[True] * 4, [True] + [False] * 3]
    _, state = softmax_attention(*draw(1, 5), cu_seqlens=[0, 1, 5], initial_state=state, output_final_state=True)
    assert state.k.shape[:2] == (2, 5)
    assert state.mask is None


def test_packed_gradients() -> None:
    inputs = draw(1, 7)
    out, _ = softmax_attention(*inputs, cu_seqlens=[0, 3, 7])
    want = torch.cat([reference(*(x[:, a:b] for x in inputs), None, True, D**-0.5) for a, b in ((0, 3), (3, 7))], dim=1)
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("kind", ["none", "middle"])
def test_the_future_never_changes_the_past(kind: str) -> None:
    inputs, mask = draw(2, 10), padding(kind, 2, 10)
    changed = [torch.cat([x[:, :6], -3 * x[:, 6:]], dim=1) for x in inputs]
    out, other = softmax_attention(*inputs, mask=mask)[0], softmax_attention(*changed, mask=mask)[0]
    assert torch.equal(out[:, :6], other[:, :6])
    assert not torch.equal(out[:, 6:], other[:, 6:])


def test_a_forked_state_is_never_altered() -> None:
    inputs = [x.detach() for x in draw(2, 8)]
    _, state = softmax_attention(*(x[:, :4] for x in inputs), output_final_state=True)
    kept = state.clone()
    softmax_attention(*(x[:, 4:] for x in inputs), initial_state=state, output_final_state=True)
    _, fork = softmax_attention_step(*(x[:, 4] for x in inputs), state)
    fork.k.zero_()
    for x in inputs:
        x.zero_()
    assert torch.equal(state.k, kept.k)
    assert torch.equal(state.v, kept.v)


def test_state_bytes() -> None:
    _, state = softmax_attention(*draw(2, 5, dtype=torch.float32), output_final_state=True)
    assert state.nbytes == 2 * state_bytes(5, heads=H, head_dim=D, value_dim=V) == 2 * 5 * H * (D + V) * 4


KEYS = torch.zeros(2, 4, H, D)
VALUES = torch.zeros(2, 4, H, V)
BAD = [
    ({"q": KEYS.long()}, "q has dtype torch.int64"),
    ({"q": [1.0]}, "q is a list"),
    ({"v": VALUES[0]}, r"v has shape \[4, 2, 4\]"),
    ({"q": KEYS[:1]}, "q and k must agree"),
    ({"v": VALUES[:, :3]}, "k and v must agree"),
    ({"q": KEYS[:, :3]}, "use causal=False"),
    ({"q": KEYS[..., :0], "k": KEYS[..., :0]}, "at least 1 wide"),
    ({"k": KEYS.double()}, r"k is torch.float64; .* use k.to\(q.dtype\)"),
    ({"k": KEYS.to("meta")}, "k on meta"),
    ({"mask": torch.ones(2, 4)}, r"mask has dtype torch.float32; .* use mask.bool\(\)"),
    ({"mask": torch.full((2, 4), float("nan"))}, "with NaN in it"),
    ({"mask": torch.ones(2, 3, dtype=torch.bool)}, r"mask has shape \[2, 3\]; accepted: .*\[2, 4\]"),
    ({"mask": [[True] * 4] * 2}, "mask is a list"),
    ({"scale": float("nan")}, "scale is nan"),
    ({"scale": "big"}, "scale is 'big'"),
    ({"cu_seqlens": torch.tensor([0, 4])}, "batch must be 1, not 2"),
]
BAD_OFFSETS = [
    (torch.tensor([0, 3]), "from 0 to 3; accepted: from 0 to the length 4"),
    (torch.tensor([1, 4]), "from 1 to 4"),
    (torch.tensor([0, 3, 2, 4]), "decreases from 3 to 2"),
    (torch.tensor([0.0, 4.0]), "dtype torch.float32"),
    (torch.tensor([4]), r"shape \[1\]"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, object], message: str) -> None:
    arguments = {"q": KEYS, "k": KEYS, "v": VALUES} | change
    with pytest.raises(ValueError, match=message):
        softmax_attention(**arguments)


@pytest.mark.parametrize(("offsets", "message"), BAD_OFFSETS)
def test_bad_offsets_are_refused(offsets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        softmax_attention(KEYS[:1], KEYS[:1], VALUES[:1], cu_seqlens=offsets)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (WindowState(KEYS, VALUES, torch.ones(2, 4, dtype=torch.bool)), "a WindowState; accepted here: KVState"),
        ((KEYS, VALUES), "a tuple; accepted here: KVState"),
        (
            KVState(KEYS[:1], VALUES[:1]),
            r"initial_state.k has shape \[1, 4, 2, 3\]; accepted here: \[2, 'time', 2, 3\]",
        ),
        (KVState(KEYS, VALUES[..., :1]), "initial_state.v has shape"),
        (KVState(KEYS, VALUES[:, :2]), "k .* and v"),
        (KVState(KEYS.double(), VALUES.double()), "initial_state.k is torch.float64 on cpu"),
        (KVState(KEYS, VALUES.double()), "one dtype out of"),
        (KVState(KEYS.to("meta"), VALUES.to("meta")), "on meta"),
        (KVState(KEYS, VALUES, torch.ones(2, 4)), "accepted: a bool mask"),
        (KVState(KEYS, None), "KVState.v is a NoneType"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: object, message: str) -> None:
    with pytest.raises(StateError, match=message):
        softmax_attention(KEYS, KEYS, VALUES, initial_state=state)
    with pytest.raises(StateError, match=message):
        softmax_attention_step(KEYS[:, 0], KEYS[:, 0], VALUES[:, 0], state)


def test_packed_needs_a_state_row_per_sequence_and_equal_lengths() -> None:
    with pytest.raises(StateError, match="2 rows for 3 packed sequences"):
        softmax_attention(KEYS[:1], KEYS[:1], VALUES[:1], cu_seqlens=[0, 1, 2, 4], initial_state=KVState(KEYS, VALUES))
    with pytest.raises(ValueError, match="q has 2 tokens and k 4"):
        softmax_attention(KEYS[:1, :2], KEYS[:1], VALUES[:1], cu_seqlens=[0, 4], causal=False)


def test_step_wants_three_axes() -> None:
    with pytest.raises(ValueError, match=r"q has shape .* a step accepts one token"):
        softmax_attention_step(KEYS, KEYS, VALUES, None)
