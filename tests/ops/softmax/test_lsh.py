"""LSH attention against Reformer's sums written out in float64: forms, gradients, hand-over, padding, packing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.ops.softmax import lsh
from linnet.ops.softmax.full import softmax_attention
from linnet.ops.softmax.lsh import FORMS, hash_buckets, lsh_attention, lsh_attention_step
from linnet.ops.state import KVState, WindowState

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}
HALF = {"rtol": 5e-3, "atol": 5e-3}
B, T, H, D, V = 2, 21, 2, 4, 3
PENALTY = 1e5  # Reformer's, on the score of a token with itself
every_form = pytest.mark.parametrize("form", FORMS)
either_way = pytest.mark.parametrize("causal", [True, False])


@pytest.fixture(autouse=True)
def _many_blocks_in_a_short_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsh, "MIN_BLOCK", 2)


def draw(batch: int = B, length: int = T, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = [(batch, length, H, D), (batch, length, H, V)]
    return [torch.randn(x, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for x in shapes]


def rotations(rounds: int, buckets: int = 8, seed: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rounds, H, buckets // 2, D, generator=g, dtype=torch.float64)


def padding(batch: int, length: int) -> Tensor:
    return torch.rand(batch, length, generator=torch.Generator().manual_seed(5)) > 0.3


def neighbours(bucket: list[int], t: int, span: int, causal: bool) -> set[int]:
    """By walking away from t through its bucket."""
    back = [j for j in range(t - 1, -1, -1) if bucket[j] == bucket[t]][:span]
    ahead = [j for j in range(t + 1, len(bucket)) if bucket[j] == bucket[t]][:span]
    return set(back if causal else back + ahead)


def one_row(q: Tensor, v: Tensor, turns: Tensor, span: int, causal: bool, most: float) -> Tensor:
    """[T,D], [T,V], [R,N,D] -> [T,V]: a softmax in each round, the rounds weighed by the sums of their exponentials.

    A pair that n rounds find loses log n in each (section 2, "multi-round LSH attention" of the paper); every round
    finds the token itself, at a penalty.
    """
    k = q / q.norm(dim=-1, keepdim=True)
    along = torch.einsum("td,rnd->rtn", k.detach(), turns)
    buckets = torch.cat([along, -along], dim=-1).argmax(-1).tolist()
    outs = []
    for t in range(len(q)):
        sets = [neighbours(bucket, t, span, causal) for bucket in buckets]
        found, sums = [], []
        for near in sets:
            keys = [*sorted(near), t]
            times = [float(len(sets) if j == t else sum(j in other for other in sets)) for j in keys]
            penalty = torch.tensor([most if j == t else 0.0 for j in keys], dtype=q.dtype)
            scores = k[keys] @ q[t] * D**-0.5 - penalty - torch.tensor(times, dtype=q.dtype).log()
            found.append(scores.softmax(-1) @ v[keys])
            sums.append(scores.logsumexp(-1))
        outs.append(torch.stack(sums).softmax(0) @ torch.stack(found))
    return torch.stack(outs)


def reference(
    q: Tensor, v: Tensor, turns: Tensor, span: int, causal: bool, mask: Tensor | None = None, penalty: float = PENALTY
) -> Tensor:
    """Every row and head on its own, with the padding cut out."""
    q, v = q.double(), v.double()
    out = torch.zeros_like(v) + 0 * (q.nan_to_num().sum() + v.nan_to_num().sum())
    for b in range(q.shape[0]):
        real = torch.arange(q.shape[1]) if mask is None else mask[b].nonzero()[:, 0]
        for h in range(H if len(real) else 0):
            row = one_row(q[b, real, h], v[b, real, h], turns[:, h].double(), span, causal, penalty)
            out = out.index_put((torch.tensor(b), real, torch.tensor(h)), row)
    return out


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * weight).sum(), inputs, materialize_grads=True, retain_graph=True)


def check(out: Tensor, want: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(out, want, **EXACT)
    for got, grad in zip(gradients(out, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


def in_pieces(inputs: list[Tensor], turns: Tensor, mask: Any, cuts: list[int], form: str) -> tuple[Tensor, KVState]:
    """The whole sequence with the state handed on at every cut."""
    outs: list[Tensor] = []
    state = None
    for a, b in pairwise([0, *cuts, T]):
        part = None if mask is None else mask[:, a:b]
        how: dict[str, Any] = {"mask": part, "initial_state": state, "output_final_state": True, "form": form}
        out, state = lsh_attention(*(x[:, a:b] for x in inputs), turns, span=2, **how)
        outs.append(out)
    assert state is not None
    return torch.cat(outs, dim=1), state


@either_way
@pytest.mark.parametrize(("rounds", "span"), [(1, 2), (4, 1), (8, 3), (4, 40)])
def test_every_form_equals_reformers_sums(rounds: int, span: int, causal: bool) -> None:
    inputs, turns = draw(), rotations(rounds)
    want = reference(*inputs, turns, span, causal)
    for form in FORMS:
        out, state = lsh_attention(*inputs, turns, span=span, causal=causal, form=form)
        assert state is None
        check(out, want, inputs)


@either_way
def test_padding_is_as_if_it_were_not_there(causal: bool) -> None:
    inputs, turns, mask = draw(), rotations(4), padding(B, T)
    want = reference(*inputs, turns, 2, causal, mask)
    wild = [x.detach().masked_fill(~mask[:, :, None, None], float("nan")).requires_grad_() for x in inputs]
    for form in FORMS:
        out, _ = lsh_attention(*wild, turns, span=2, causal=causal, mask=mask, form=form)
        torch.testing.assert_close(out, want, **EXACT)
        for got, grad in zip(gradients(out, wild), gradients(want, inputs), strict=True):
            torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("padded", [False, True])
def test_any_split_hands_the_state_on(padded: bool) -> None:
    inputs, turns, mask = draw(), rotations(4), padding(B, T) if padded else None
    want = reference(*inputs, turns, 2, True, mask)
    for form in FORMS:
        for cuts in ([1], [13], [0, 7, 7, 18, T]):
            out, state = in_pieces(inputs, turns, mask, cuts, form)
            check(out, want, inputs)
            assert state.k.shape == (B, T, H, D)


def test_steps_equal_the_whole_after_a_padded_prompt() -> None:
    inputs, turns = draw(length=16), rotations(4)
    mask = torch.cat([padding(B, 8), torch.ones(B, 8, dtype=torch.bool)], dim=1)
    how: dict[str, Any] = {"mask": mask[:, :8], "output_final_state": True}
    prompt, state = lsh_attention(*(x[:, :8] for x in inputs), turns, span=2, **how)
    outs = [prompt]
    for t in range(8, 16):
        out, state = lsh_attention_step(*(x[:, t] for x in inputs), turns, state, span=2)
        outs.append(out[:, None])
    check(torch.cat(outs, dim=1), reference(*inputs, turns, 2, True, mask), inputs)


@either_way
def test_a_past_counts_as_keys_and_has_a_gradient(causal: bool) -> None:
    (q, v), turns = draw(length=20), rotations(4)
    past = [x[:, :12].detach().requires_grad_() for x in (q, v)]
    _, state = lsh_attention(*past, turns, span=2, output_final_state=True)
    new = [x[:, 12:] for x in (q, v)]
    whole = [torch.cat([a, b], dim=1) for a, b in zip(past, new, strict=True)]
    want = reference(*whole, turns, 2, causal)[:, 12:]
    for form in FORMS:
        out, _ = lsh_attention(*new, turns, span=2, causal=causal, initial_state=state, form=form)
        check(out, want, [*past, q, v])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@every_form
def test_single_and_half_precision(form: str, dtype: torch.dtype) -> None:
    """Against the same numbers in float64; the keys are hashed as they are kept, so float16 has buckets of its own."""
    inputs, turns = draw(dtype=dtype), rotations(4).float()
    out, state = lsh_attention(*inputs, turns, span=3, form=form, output_final_state=True)
    assert state is not None
    assert out.dtype == state.k.dtype == dtype
    bucket = hash_buckets(state.k, turns)
    q, v = (x.detach().double() for x in inputs)
    assert torch.equal(bucket, hash_buckets(state.k.double(), turns.double()))
    sets = [[[neighbours(bucket[b, r, h].tolist(), t, 3, True) for r in range(4)] for t in range(T)]
            for b in range(B) for h in range(H)]  # fmt: skip
    for i, (b, h) in enumerate((b, h) for b in range(B) for h in range(H)):
        k = q[b, :, h] / q[b, :, h].norm(dim=-1, keepdim=True)
        for t in range(T):
            keys = sorted(set().union(*sets[i][t])) or [t]
            want = (k[keys] @ q[b, t, h] * D**-0.5).softmax(0) @ v[b, keys, h]
            torch.testing.assert_close(out[b, t, h].double(), want, **(SINGLE if dtype == torch.float32 else HALF))


@every_form
@either_way
def test_one_bucket_and_a_wide_span_is_softmax_without_oneself(form: str, causal: bool) -> None:
    """Both directions of one matrix are two buckets; with values all on one side of it, one."""
    q, v = draw()
    q = q.detach().abs()
    turns = torch.ones(4, H, 1, D, dtype=torch.float64)
    out, _ = lsh_attention(q, v, turns, span=T, causal=causal, form=form)
    k = q / q.norm(dim=-1, keepdim=True)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * D**-0.5
    hidden = torch.eye(T, dtype=torch.bool)
    if causal:
        hidden |= torch.ones(T, T).triu(1).bool()
        hidden[0, 0] = False  # alone
    want = torch.einsum("bhts,bshv->bthv", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
    torch.testing.assert_close(out, want, **EXACT)
    assert not torch.allclose(want, softmax_attention(q, k, v, causal=causal)[0], atol=1e-3)  # oneself matters


@every_form
def test_a_token_alone_answers_its_own_value(form: str) -> None:
    q = torch.eye(D, dtype=torch.float64).repeat(1, 1, H).view(1, D, H, D)
    v = draw(1, D)[1]
    turns = torch.eye(D, dtype=torch.float64).expand(2, H, D, D)
    assert hash_buckets(q, turns)[0, 0, 0].tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(lsh_attention(q, v, turns, span=5, form=form)[0], v, **EXACT)
    zero = torch.zeros_like(q, requires_grad=True)  # no direction: finite all the same
    out, _ = lsh_attention(zero, v, turns, span=5, form=form)
    assert all(x.isfinite().all() for x in gradients(out, [zero, v]))


@every_form
@either_way
def test_large_scores_neither_overflow_nor_vanish(form: str, causal: bool) -> None:
    """Scores of -5000 to 5000: the nearest neighbour takes it all, also where every neighbour points away."""
    (q, v), turns = draw(), rotations(1, 2)
    big = (1e4 * q.detach()).float().requires_grad_()
    out, _ = lsh_attention(big, v.detach().float(), turns.float(), span=3, causal=causal, form=form)
    torch.testing.assert_close(out.double(), reference(big, v.float(), turns, 3, causal, penalty=1e9), **SINGLE)
    assert gradients(out, [big])[0].isfinite().all()


@every_form
def test_the_future_never_changes_the_past(form: str) -> None:
    inputs, turns = draw(length=60), rotations(4)
    changed = [torch.cat([x[:, :33], -3 * x[:, 33:].flip(1)], dim=1) for x in inputs]
    out, other = (lsh_attention(*x, turns, span=2, form=form)[0] for x in (inputs, changed))
    torch.testing.assert_close(out[:, :33], other[:, :33], rtol=0, atol=1e-14)
    assert not torch.allclose(out[:, 33:], other[:, 33:])
    for row in range(3):
        (grad,) = torch.autograd.grad(out[:, 10 * row].sum(), inputs[1], retain_graph=True)
        assert not grad[:, 10 * row + 1 :].any()


@pytest.mark.parametrize("lengths", [[3, 0, 9, 1], [0]])
def test_packed_equals_each_alone_and_resumes(lengths: list[int]) -> None:
    total, offsets = sum(lengths), [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    inputs, more, turns = draw(1, total), draw(1, total, seed=1), rotations(4)
    mask = torch.ones(1, total, dtype=torch.bool)
    mask[:, 1:2] = False
    options: dict[str, Any] = {"span": 2, "cu_seqlens": torch.tensor(offsets), "output_final_state": True}
    out, state = lsh_attention(*inputs, turns, mask=mask, **options)
    after, state = lsh_attention(*more, turns, initial_state=state, **options)
    assert state is not None
    assert state.k.shape[0] == len(lengths)
    for a, b in pairwise(offsets):
        both = [torch.cat([x[:, a:b], y[:, a:b]], dim=1) for x, y in zip(inputs, more, strict=True)]
        real = torch.cat([mask[:, a:b], torch.ones_like(mask[:, a:b])], dim=1)
        got = torch.cat([out[:, a:b], after[:, a:b]], dim=1)
        check(got, reference(*both, turns, 2, True, real), inputs + more)


def test_a_long_sequence_takes_the_chunked_form_and_little_memory() -> None:
    sizes: list[int] = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    inputs, turns = draw(1, 1000, dtype=torch.float32), rotations(2, 32).float()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out, _ = lsh_attention(*inputs, turns, span=8)
    assert max(sizes) <= H * 1008 * 2 * 16
    torch.testing.assert_close(out, lsh_attention(*inputs, turns, span=8, form="parallel")[0], **SINGLE)


def test_a_forked_state_is_never_altered() -> None:
    inputs, turns = [x.detach() for x in draw()], rotations(2)
    _, state = lsh_attention(*inputs, turns, span=3, output_final_state=True)
    kept = state.clone()
    lsh_attention(*inputs, turns, span=3, initial_state=state, output_final_state=True)
    _, fork = lsh_attention_step(*(x[:, 4] for x in inputs), turns, state, span=3)
    for x in (fork.k, fork.v, *inputs):
        x.zero_()
    assert torch.equal(state.k, kept.k)
    assert torch.equal(state.v, kept.v)


Q, VALUES, TURNS = torch.zeros(B, 4, H, D), torch.zeros(B, 4, H, V), torch.zeros(2, H, 4, D)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"span": 0}, "span is 0; accepted: a whole number"),
        ({"span": True}, "span is True"),
        ({"rotations": TURNS[0]}, r"rotations has shape \[2, 4, 4\]; accepted: \[rounds, 2 heads"),
        ({"rotations": TURNS[:, :1]}, r"rotations has shape \[2, 1, 4, 4\]"),
        ({"rotations": TURNS.to("meta")}, "q is on cpu but rotations on meta"),
        ({"q": Q.int()}, "q has dtype torch.int32"),
        ({"v": VALUES[:, :2]}, "k and v must agree"),
        ({"form": "chunky"}, "unknown form 'chunky'; did you mean 'chunked'"),
        ({"mask": torch.ones(B, 4)}, "mask has dtype torch.float32"),
        ({"scale": float("inf")}, "scale is inf"),
        ({"cu_seqlens": torch.tensor([0, 8])}, "batch must be 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    arguments = {"q": Q, "v": VALUES, "rotations": TURNS, "span": 5} | change
    with pytest.raises(ValueError, match=message):
        lsh_attention(**arguments)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (WindowState(Q, VALUES, torch.ones(B, 4, dtype=torch.bool)), "a WindowState; accepted here: KVState"),
        (KVState(Q[:1], VALUES[:1]), "initial_state.k has shape"),
        (KVState(Q.double(), VALUES.double()), "torch.float64 on cpu but k is torch.float32"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        lsh_attention(Q, VALUES, TURNS, span=5, initial_state=state)
    with pytest.raises(StateError, match=message):
        lsh_attention_step(Q[:, 0], VALUES[:, 0], TURNS, state, span=5)
