"""The delta rule against the equation, token by token in float64: outputs, states, gradients, splits, padding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import normalize

from linnet.errors import StateError
from linnet.ops.gated import naive
from linnet.ops.gated.delta import delta_rule, delta_rule_step, state_bytes
from linnet.ops.state import MatrixState

EXACT, SINGLE = 1e-10, 2e-5  # of the largest number
HALF = {torch.bfloat16: 2e-2, torch.float16: 2e-3}
FORMS = ["parallel", "chunked", "recurrent"]
B, H, D, V = 2, 3, 4, 5
every_form = pytest.mark.parametrize("form", FORMS)
gated = pytest.mark.parametrize("gate", [None, "head", "channel"], ids=["delta", "gated", "by channel"])


decayed = pytest.mark.parametrize("gate", ["head", "channel"])


def draw(
    length: int, gate: str | None = "head", *, top: float = 2.0, strength: float = 1.0, batch: int = B
) -> list[Any]:
    """q, k, v, beta, decay, s as leaves in float64; beta up to `top`, decay down to -strength."""
    g = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(batch, length, H, n, generator=g, dtype=torch.float64) for n in (D, D, V))
    beta = torch.rand(batch, length, H, generator=g, dtype=torch.float64)
    decay = torch.rand(batch, length, H, *([D] if gate == "channel" else []), generator=g, dtype=torch.float64)
    s = torch.randn(batch, H, D, V, generator=g, dtype=torch.float64)
    drawn = [q, normalize(k, dim=-1), v, top * beta, -strength * decay if gate else None, s]
    return [None if x is None else x.requires_grad_() for x in drawn]


def run(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Any, s: Any, **how: Any) -> tuple[Tensor, Tensor]:
    start = None if s is None else MatrixState(s)
    out, end = delta_rule(q, k, v, beta, decay, initial_state=start, output_final_state=True, **how)
    assert end is not None
    return out, end.s


def gradients(outs: tuple[Tensor, ...], inputs: list[Any]) -> list[Tensor]:
    loss = sum((x.double() * torch.arange(x.numel()).double().cos().view(x.shape)).sum() for x in outs)
    return list(torch.autograd.grad(loss, [x for x in inputs if x is not None], materialize_grads=True))


def close(found: Any, want: Any, limit: float = EXACT) -> None:
    for i, (a, b) in enumerate(zip(found, want, strict=True)):
        assert a.shape == b.shape
        if b.numel():
            off = (a.detach().double() - b.detach().double()).abs().max() / b.detach().abs().max().clamp(min=1e-3)
            assert off <= limit, f"result {i} is off by {off:.1e}"


def check(found: tuple[Tensor, ...], want: tuple[Tensor, ...], inputs: list[Any], limit: float = EXACT) -> None:
    close(found, want, limit)
    close(gradients(found, inputs), gradients(want, inputs), limit)


@every_form
@pytest.mark.parametrize("part", [0, 1])
@decayed
def test_gradients_of_the_output_alone_or_of_the_state_alone(form: str, part: int, gate: str) -> None:
    inputs = draw(8, gate)
    found, want = run(*inputs, form=form, chunk_size=4), naive.delta_rule(*inputs)
    given = inputs if part == 0 else inputs[1:]  # the state never sees a query
    close(gradients((found[part],), given), gradients((want[part],), given))


@gated
@pytest.mark.parametrize("strength", [1.0, 30.0])
def test_float32(gate: str | None, strength: float) -> None:
    """Three chunks of the usual size, and decays strong enough for e^-2000."""
    inputs = draw(150, gate, strength=strength, batch=1)
    want = run(*inputs, form="recurrent")
    single = [None if x is None else x.detach().float().requires_grad_() for x in inputs]
    for form in FORMS:
        found = run(*single, form=form)
        assert found[0].dtype == found[1].dtype == torch.float32
        close(found, want, SINGLE)
        close(gradients(found, single), gradients(run(*inputs, form="recurrent"), inputs), SINGLE)


@pytest.mark.parametrize("form", ["parallel", "chunked"])
def test_the_same_key_all_the_time(form: str) -> None:
    """The triangular matrix at its worst: every entry under the diagonal is beta, and with 2 its powers explode."""
    q, k, v, beta, _, s = (None if x is None else x.detach().float() for x in draw(64, None))
    k, beta = k[:, :1].expand_as(k), torch.full_like(beta, 2.0)
    found, want = run(q, k, v, beta, None, s, form=form), run(q, k, v, beta, None, s, form="recurrent")
    close(found, want, 5 * SINGLE)


@every_form
def test_one_and_zero_overwrite_and_keep(form: str) -> None:
    """beta = 1 on a key of length 1: the memory answers this key with the new value; beta = 0 changes nothing."""
    q, k, v, beta, _, s = draw(6, None)
    _, end = run(q, k, v, torch.ones_like(beta), None, s, form=form)
    close([(k[:, -1, :, None] @ end)[:, :, 0]], [v[:, -1]])
    out, end = run(q, k, v, torch.zeros_like(beta), None, s, form=form)
    assert torch.equal(end, s)
    close([out], [torch.einsum("bthd,bhdv->bthv", q, s)])


@every_form
@decayed
def test_a_decay_of_minus_infinity_is_a_fresh_start(form: str, gate: str) -> None:
    inputs = [x.detach() for x in draw(9, gate)]
    q, k, v, beta, decay, s = inputs
    decay[:, 4] = -torch.inf
    leaf = decay.requires_grad_()
    out, end = run(q, k, v, beta, leaf, s, form=form, chunk_size=4)
    fresh = naive.delta_rule(
        q[:, 4:], k[:, 4:], v[:, 4:], beta[:, 4:], decay[:, 4:].clamp(min=-1e3), torch.zeros_like(s)
    )
    close([out[:, 4:], end], fresh)
    assert torch.autograd.grad(out.sum() + end.sum(), leaf)[0].isfinite().all()


def padding(length: int, *holes: int) -> Tensor:
    mask = torch.ones(B, length, dtype=torch.bool)
    mask[0, list(holes)] = False
    return mask


@every_form
@gated
@pytest.mark.parametrize("holes", [(0, 1), (8, 9), (3, 5, 6), tuple(range(10))])
def test_padding_is_as_if_it_were_not_there(form: str, gate: str | None, holes: tuple[int, ...]) -> None:
    inputs, mask = draw(10, gate), padding(10, *holes)
    found = run(*inputs, mask=mask, form=form, chunk_size=4)
    check(found, naive.delta_rule(*inputs, mask), inputs)
    assert (found[0][~mask] == 0).all()


@every_form
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_stands_in_the_padding_is_never_read(form: str, value: float) -> None:
    inputs, mask = draw(10), padding(10, 0, 5, 9)
    *tokens, s = inputs
    dirty = [torch.where(mask[(...,) + (None,) * (x.ndim - 2)], x, value) for x in tokens]
    found, want = (run(*x, s, mask=mask, form=form, chunk_size=4) for x in (dirty, tokens))
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
    for got, grad in zip(gradients(found, inputs), gradients(want, inputs), strict=True):
        assert torch.equal(got, grad)


@settings(max_examples=40)
@given(st.data())
def test_any_split_and_any_mask_hand_the_state_on(data: st.DataObject) -> None:
    length, gate = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([None, "head", "channel"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=3)))
    bits = data.draw(st.none() | st.lists(st.booleans(), min_size=B * length, max_size=B * length))
    mask = None if bits is None else torch.tensor(bits).view(B, length)
    size, form = data.draw(st.integers(1, 6)), data.draw(st.sampled_from(["auto", *FORMS]))
    *tokens, s = inputs = draw(length, gate)
    outs, now = [], s
    for lo, hi in pairwise([0, *cuts, length]):
        piece = [None if x is None else x[:, lo:hi] for x in tokens]
        part = None if mask is None else mask[:, lo:hi]
        out, now = run(*piece, now, mask=part, form=form, chunk_size=size)
        outs.append(out)
    check((torch.cat(outs, dim=1), now), run(*inputs, mask=mask, form="recurrent"), inputs)


@every_form
@decayed
def test_the_future_never_changes_the_past(form: str, gate: str) -> None:
    *tokens, s = draw(12, gate)
    later = [torch.cat([x[:, :7], 0.3 * x[:, 7:]], dim=1) for x in tokens]
    out, other = (run(*x, s, form=form, chunk_size=5)[0] for x in (tokens, later))
    assert torch.equal(out[:, :7], other[:, :7])
    assert not torch.equal(out[:, 7:], other[:, 7:])


@every_form
def test_values_enter_by_weights_that_do_not_depend_on_them(form: str) -> None:
    """The implied attention map: unit vectors as values give the weights of any others."""
    q, k, v, beta, decay, _ = draw(11)
    unit = torch.eye(11, dtype=torch.float64)[None, :, None].expand(B, 11, H, 11)
    weights, _ = delta_rule(q, k, unit, beta, decay, form=form, chunk_size=4)
    out, _ = delta_rule(q, k, v, beta, decay)
    close([torch.einsum("bthj,bjhv->bthv", weights, v)], [out])
    assert (weights.transpose(1, 2).triu(1) == 0).all()


@gated
def test_gradients_of_gradients_and_tangents(gate: str | None) -> None:
    inputs = draw(5, gate, batch=1)

    def call(*given: Any) -> tuple[Tensor, Tensor]:
        q, k, v, beta, *rest = given
        return run(q, k, v, beta, rest[0] if gate else None, rest[-1], form="chunked", chunk_size=3)

    leaves = [x for x in inputs if x is not None]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)
    ways = tuple(torch.ones_like(x) for x in leaves)
    with forward_ad.dual_level():
        outs = call(*(forward_ad.make_dual(x.detach(), way) for x, way in zip(leaves, ways, strict=True)))
        slopes = [forward_ad.unpack_dual(x).tangent for x in outs]
    close(slopes, torch.autograd.functional.jvp(call, tuple(leaves), ways)[1])


@decayed
def test_a_compiled_graph_has_no_break(gate: str) -> None:
    torch.compiler.reset()
    inputs = [x.detach().float() for x in draw(9, gate)]
    whole = torch.compile(lambda *x: run(*x, chunk_size=4), fullgraph=True, backend="aot_eager")
    close(whole(*inputs), run(*inputs, chunk_size=4), SINGLE)


@every_form
@pytest.mark.parametrize("length", [0, 1, 6])
def test_the_given_state_is_never_altered(form: str, length: int) -> None:
    *tokens, s = (x.detach() for x in draw(length))
    kept = s.clone()
    out, end = run(*tokens, s, form=form)
    assert out.shape == (B, length, H, V)
    assert torch.equal(s, kept)
    if length:
        end.zero_()
        assert torch.equal(s, kept)


def test_state_bytes_do_not_grow() -> None:
    for length, dtype in ((0, torch.float32), (9, torch.float64), (5, torch.bfloat16)):
        *tokens, _ = (x.detach().to(dtype) for x in draw(length))
        _, end = run(*tokens, None)
        assert end.nbytes == B * state_bytes(length, heads=H, key_dim=D, value_dim=V, dtype=dtype)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": torch.zeros(2, 3, 4)}, ValueError, r"q has shape \[2, 3, 4\]; accepted: four axes"),
        ({"beta": torch.zeros(B, 6)}, ValueError, r"beta has shape \[2, 6\]; accepted: \[batch, time, heads\]"),
        ({"beta": torch.zeros(B, 6, H).int()}, ValueError, r"beta has dtype torch.int32"),
        ({"decay": torch.zeros(B, 6, H, V)}, ValueError, r"decay has shape \[2, 6, 3, 5\]; accepted: \[batch, time"),
        ({"decay": 0.9}, ValueError, "decay is a float; accepted: a torch.Tensor"),
        ({"mask": torch.ones(B, 5, dtype=torch.bool)}, ValueError, r"mask has shape \[2, 5\]"),
        ({"form": "chunkt"}, ValueError, "did you mean 'chunked'"),
        ({"chunk_size": 0}, ValueError, "chunk_size is 0; accepted: a whole number, 1 or more"),
        ({"initial_state": MatrixState(torch.zeros(B, H, V, D))}, StateError, r"\[2, 3, 5, 4\]; accepted here: \[B,H"),
        ({"initial_state": 3}, StateError, "the state is a int; accepted here: MatrixState"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    q, k, v, beta, decay, _ = (x.detach() for x in draw(6))
    with pytest.raises(error, match=message):
        delta_rule(**{"q": q, "k": k, "v": v, "beta": beta, "decay": decay, **change})


def test_a_step_takes_one_token() -> None:
    q, k, v, beta, decay, _ = (x.detach() for x in draw(6))
    with pytest.raises(ValueError, match="a step accepts one token, three axes"):
        delta_rule_step(q, k, v, beta, decay)
    with pytest.raises(ValueError, match=r"beta has shape \[2, 6, 3\]; a step accepts one token, two axes"):
        delta_rule_step(q[:, 0], k[:, 0], v[:, 0], beta)
    with pytest.raises(ValueError, match=r"decay has shape \[2\]; a step accepts one token, two axes"):
        delta_rule_step(q[:, 0], k[:, 0], v[:, 0], beta[:, 0], decay[:, 0, 0])


def test_the_same_decay_in_every_channel_is_one_decay_per_head() -> None:
    q, k, v, beta, decay, s = draw(70)
    for form in FORMS:
        close(run(q, k, v, beta, decay[..., None].expand_as(k), s, form=form), run(q, k, v, beta, decay, s))
