"""The contract of `linnet.linear_attention` beyond equality with the reference (test_parity.py).

What it never touches or reads, steps against the whole, no tokens at all, half precision, autocast, strange strides.
What it refuses is in test_checks.py, autograd in test_gradients.py, torch.compile in test_compile.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from linnet import State, linear_attention, linear_attention_step
from linnet import feature_maps as maps
from linnet.ops.linear.attention import state_bytes
from tests.ops.runs import RUNS, close, every_run, qkv


@every_run
def test_the_future_never_changes_the_past(form: str, backend: str) -> None:
    q, k, v = qkv(2, 50, 2, 8)
    out, _ = linear_attention(q, k, v, form=form, backend=backend, chunk_size=16)
    for t in (0, 1, 15, 16, 17, 49):
        later = [x.clone() for x in (q, k, v)]
        for x in later:
            x[:, t + 1 :] = x[:, t + 1 :].flip(0) * 3 - 1
        again, _ = linear_attention(*later, form=form, backend=backend, chunk_size=16)
        assert torch.equal(out[:, : t + 1], again[:, : t + 1])
        assert t == 49 or not torch.equal(out, again)


@every_run
@pytest.mark.parametrize("length", [0, 1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forked_state_is_never_altered(form: str, backend: str, length: int, dtype: torch.dtype) -> None:
    backend = "torch" if dtype == torch.float64 else backend
    _, state = linear_attention(*qkv(2, 30, 2, 8, dtype=dtype), output_final_state=True, form=form, backend=backend)
    assert state is not None
    kept = state.clone()
    how = {"initial_state": state, "output_final_state": True, "form": form, "backend": backend}
    first, one = linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=1), **how)
    linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=2), **how)
    again, two = linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=1), **how)
    assert one is not None
    assert two is not None
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
    assert torch.equal(first, again)
    one.s.zero_()  # the new state is its own memory, also after no token at all
    assert torch.equal(state.s, kept.s)
    assert not torch.equal(two.s, one.s)


@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
@pytest.mark.parametrize("phi", ["elu", "taylor", "dpfp", None])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_equal_the_whole(backend: str, phi: str | None, grad: bool) -> None:
    q, k, v = (x.abs().requires_grad_(grad) for x in qkv(2, 12, 3, 4))
    want, final = linear_attention(q, k, v, feature_map=phi, output_final_state=True, backend="torch")
    state, outs = None, []
    for t in range(12):
        out, state = linear_attention_step(q[:, t], k[:, t], v[:, t], state, feature_map=phi, backend=backend)
        outs.append(out)
    assert state is not None
    assert final is not None
    assert close(torch.stack(outs, 1), want)
    assert close(state.s, final.s)
    assert close(state.z, final.z)
    if grad:
        ours, theirs = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (torch.stack(outs, 1), want))
        assert all(close(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("shape", [(0, 5, 2, 4), (2, 5, 0, 4), (2, 0, 2, 4)])
@every_run
def test_nothing_at_all(form: str, backend: str, shape: tuple[int, ...]) -> None:
    """No rows, no heads or no tokens: empty outputs, a zero state, gradients that exist."""
    q, k, v = (x.requires_grad_() for x in qkv(*shape))
    out, state = linear_attention(q, k, v, output_final_state=True, form=form, backend=backend)
    assert state is not None
    assert out.shape == v.shape
    assert state.s.shape == (shape[0], shape[2], 4, 4)
    assert (state.s == 0).all()
    assert all(
        x.shape == y.shape
        for x, y in zip(
            torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True, materialize_grads=True), (q, k, v), strict=True
        )
    )


@every_run
@pytest.mark.parametrize("phi", ["elu", "taylor", None])
@pytest.mark.parametrize(("queries", "keys"), [(7, 150), (150, 3), (1, 2), (0, 9), (20, 0)])
@pytest.mark.parametrize("normalize", [True, False])
def test_reading_a_kept_source_equals_direct_cross_attention(
    form: str, backend: str, phi: str | None, queries: int, keys: int, normalize: bool
) -> None:
    """Keys and values summed up once, then asked without any new key; gradients flow back through the state."""
    q, (_, k, v) = qkv(2, queries, 2, 4)[0], qkv(2, keys, 2, 4, value=5, seed=1)
    q, k, v = (x.requires_grad_() for x in (q.abs(), k.abs(), v))  # v of both signs: else dq cancels down to rounding
    how: dict[str, Any] = {"feature_map": phi, "causal": False, "normalize": normalize, "output_final_state": True}
    run = {"form": form, "backend": backend}
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want, final = linear_attention(*exact, **how, form="parallel")
    _, source = linear_attention(q[:, :0], k, v, **how, **run)
    out, again = linear_attention(q, k[:, :0], v[:, :0], initial_state=source, **how, **run)
    assert source is not None
    assert again is not None
    assert final is not None
    assert out.shape == want.shape
    assert torch.equal(again.s, source.s)
    assert torch.equal(again.z, source.z)
    assert again.s.data_ptr() != source.s.data_ptr()
    pairs = [(out, want), (again.s, final.s), (again.z, final.z)]
    assert all(close(a, b) for a, b in pairs if b.numel())
    loss, exact_loss = (o.square().sum() + x.s.sum() + x.z.square().sum() for o, x in ((out, again), (want, final)))
    ours = torch.autograd.grad(loss, (q, k, v), materialize_grads=True)
    theirs = torch.autograd.grad(exact_loss, exact, materialize_grads=True)
    assert all(close(a, b) for a, b in zip(ours, theirs, strict=True) if b.numel())


@every_run
@pytest.mark.parametrize("leaf", ["s", "z"])
def test_gradients_into_a_source_alone(form: str, backend: str, leaf: str) -> None:
    """Nothing but one half of the state asks for a gradient."""
    q, k, v = qkv(2, 11, 2, 4)
    _, source = linear_attention(q, k, v, causal=False, output_final_state=True)
    assert source is not None
    grads = []
    for dtype, how in ((torch.float32, {"form": form, "backend": backend}), (torch.float64, {"form": "parallel"})):
        state = source.to(dtype=dtype)
        getattr(state, leaf).requires_grad_()
        none = (k[:, :0].to(dtype), v[:, :0].to(dtype))
        out, _ = linear_attention(q.to(dtype), *none, causal=False, initial_state=state, **how)
        grads += torch.autograd.grad(out.square().sum(), [getattr(state, leaf)])
    assert grads[0].abs().max() > 0
    assert close(*grads)


@pytest.mark.parametrize("phi", ["elu", "taylor"])
@pytest.mark.parametrize("width", [3, 16])
def test_unwritten_memory_is_never_read(phi: str, width: int) -> None:
    """Freed memory full of NaN all around: a kernel that reads one entry of scratch too far shows it."""
    q, k, v = (x.requires_grad_() for x in qkv(2, 34, 2, 4, value=width))
    for _ in range(20):
        litter = [torch.full((2**n,), float("nan")) for n in range(6, 17) for _ in range(8)]
        del litter
        out, state = linear_attention(q, k, v, feature_map=phi, output_final_state=True)
        assert state is not None
        litter = [torch.full((2**n,), float("nan")) for n in range(6, 17) for _ in range(8)]
        del litter
        grads = torch.autograd.grad(out.sum() + state.s.sum(), (q, k, v))
        assert all(x.isfinite().all() for x in (out, *state, *grads))


@every_run
@pytest.mark.parametrize("phi", ["elu", "hedgehog"])
def test_autocast_lowers_nothing(form: str, backend: str, phi: str) -> None:
    q, k, v = qkv(1, 40, 2, 8)
    how = {"feature_map": maps.build(phi, 8, n_heads=2), "output_final_state": True, "form": form, "backend": backend}
    want, _ = linear_attention(q, k, v, **how)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, state = linear_attention(q, k, v, **how)
        low, _ = linear_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), **how)
    assert state is not None
    assert state.s.dtype == state.z.dtype == torch.float32
    assert torch.equal(got, want)
    assert low.dtype == torch.bfloat16
    assert close(low, want)


@every_run
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_and_out_with_a_float32_state(form: str, backend: str, dtype: torch.dtype) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(2, 70, 2, 8, dtype=dtype))
    out, state = linear_attention(q, k, v, output_final_state=True, form=form, backend=backend)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want, final = linear_attention(*wide, output_final_state=True)
    assert state is not None
    assert final is not None
    assert (out.dtype, state.s.dtype, state.z.dtype) == (dtype, torch.float32, torch.float32)
    assert close(out, want)
    assert close(state.s, final.s, torch.float32)  # summed in float32: only the inputs were rounded
    ours, theirs = torch.autograd.grad(out.sum(), (q, k, v)), torch.autograd.grad(want.sum(), wide)
    assert all(a.dtype == dtype and close(a, b) for a, b in zip(ours, theirs, strict=True))


@every_run
def test_float16_gradients_are_finite(form: str, backend: str) -> None:
    """Features of dpfp are often all 0: between the halves of such a map a gradient of 1 / eps is beyond float16."""
    leaves = [x.requires_grad_() for x in qkv(1, 2, 3, 4, dtype=torch.float16)]
    out, _ = linear_attention(*leaves, feature_map="dpfp", form=form, backend=backend)
    out.float().sum().backward()
    assert out.dtype == torch.float16
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in leaves)


def test_a_float64_state_is_kept() -> None:
    q, k, v = qkv(1, 10, 2, 4)
    start = State(torch.zeros(1, 2, 4, 4, dtype=torch.float64), torch.zeros(1, 2, 4, dtype=torch.float64))
    out, state = linear_attention(q, k, v, initial_state=start, output_final_state=True)
    _, wide = linear_attention(q.double(), k.double(), v.double(), output_final_state=True)
    assert state is not None
    assert wide is not None
    assert out.dtype == torch.float32
    assert state.s.dtype == torch.float64
    assert close(state.s, wide.s)


@every_run
def test_strides_do_not_matter(form: str, backend: str) -> None:
    packed = torch.randn(2, 30, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    views = {
        "packed": packed.unbind(2),
        "head major": [x.transpose(1, 2).contiguous().transpose(1, 2) for x in packed.unbind(2)],
        "width not last": [x.transpose(2, 3).contiguous().transpose(2, 3) for x in packed.unbind(2)],
        "expanded": [x[:1].expand(2, -1, -1, -1) for x in packed.unbind(2)],
        "every second token": [x[:, ::2] for x in packed.unbind(2)],
        "backwards": [x.flip(1) for x in packed.unbind(2)],
    }
    for name, inputs in views.items():
        results = []
        for xs in (inputs, [x.contiguous() for x in inputs]):
            leaves = [x.detach().requires_grad_() for x in xs]
            out, _ = linear_attention(*leaves, form=form, backend=backend)
            weight = torch.ones((), dtype=out.dtype).expand(out.shape)  # a gradient of stride 0
            results.append([out, *torch.autograd.grad(out, leaves, weight)])
        assert all(close(a, b) for a, b in zip(*results, strict=True)), name


class WideProducts(TorchDispatchMode):
    """Refuses a matrix product of bfloat16 or float16 before torch computes it."""

    products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(word in str(func) for word in ("mm", "mv", "dot", "linear.", "conv")):
            dtypes = {x.dtype for x in args if isinstance(x, torch.Tensor)}
            assert not dtypes & {torch.bfloat16, torch.float16}, f"{func} of {dtypes}"
            self.products += 1
        return func(*args, **(kwargs or {}))


@every_run
@pytest.mark.parametrize("phi", ["elu", "taylor", "hedgehog", "rebased", "favor"])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_widened_before_any_product(form: str, backend: str, phi: str, autocast: bool) -> None:
    """Forward and backward: 8 bits cannot hold a sum of products, and on some machines torch has no such product."""
    q, k, v = (x.requires_grad_() for x in qkv(1, 20, 2, 8, dtype=torch.bfloat16))
    how = {"feature_map": maps.build(phi, 8, n_heads=2), "form": form, "backend": backend}
    with WideProducts() as seen:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            out, _ = linear_attention(q, k, v, **how)
        torch.autograd.grad(out.float().sum(), (q, k, v))
    assert seen.products > 0 or backend == "native"


@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("phi", ["elu", "taylor"])
def test_backward_inside_autocast_lowers_nothing(phi: str, create_graph: bool, backend: str) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(1, 20, 2, 8))
    out, _ = linear_attention(q, k, v, feature_map=phi, form="chunked", backend=backend)
    want = torch.autograd.grad(out.square().sum(), (q, k, v), create_graph=create_graph, retain_graph=True)
    with WideProducts(), torch.autocast("cpu", dtype=torch.bfloat16):
        got = torch.autograd.grad(out.square().sum(), (q, k, v), create_graph=create_graph)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@every_run
@pytest.mark.parametrize("causal", [True, False])
def test_offsets_may_be_a_list(form: str, backend: str, causal: bool) -> None:
    q, k, v = qkv(1, 9, 2, 4)
    how = {"causal": causal, "form": form, "backend": backend, "output_final_state": True}
    results = []
    for offsets in ([0, 4, 4, 9], (0, 4, 4, 9), torch.tensor([0, 4, 4, 9], dtype=torch.int32)):
        out, state = linear_attention(q, k, v, cu_seqlens=offsets, **how)
        assert state is not None
        results.append((out, *state))
    first, _ = linear_attention(q[:, :4], k[:, :4], v[:, :4], **how)
    last, _ = linear_attention(q[:, 4:], k[:, 4:], v[:, 4:], **how)
    assert close(results[0][0], torch.cat([first, last], dim=1))
    assert results[0][1].shape == (3, 2, 4, 4)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("phi", ["elu", "taylor", "dpfp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_state_bytes_do_not_grow(phi: str, dtype: torch.dtype) -> None:
    """Whatever the inputs are, the state is float32 or wider."""
    sizes = {"heads": 2, "feature_dim": maps.resolve(phi, 3).feature_dim, "value_dim": 5}
    for length in (0, 1, 50):
        inputs = qkv(2, length, 2, 3, value=5, dtype=dtype)
        _, state = linear_attention(*inputs, feature_map=phi, output_final_state=True)
        assert state is not None
        assert state.nbytes == 2 * state_bytes(length, **sizes, dtype=dtype)
    assert state_bytes(7, heads=2, feature_dim=3, value_dim=5) == 2 * 3 * (5 + 1) * 4
