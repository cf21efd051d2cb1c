"""The short path of linear attention: the same bits as the long one, and only for calls that need no closer look."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from linnet import State, linear_attention, linear_attention_step
from linnet.feature_maps import resolve
from linnet.native.library import library
from linnet.ops.linear.usual import run_usual_step

B, H, D = 2, 3, 20
needs_library = pytest.mark.skipif(library() is None, reason="no native library")


def token(V: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(V)
    q, k = (torch.randn(B, H, D, generator=g) for _ in range(2))
    return q, k, torch.randn(B, H, V, generator=g)


def state_of(V: int, dtype: torch.dtype = torch.float32) -> State:
    g = torch.Generator().manual_seed(-1 - V)
    return State(torch.randn(B, H, D, V, generator=g).to(dtype), torch.rand(B, H, D, generator=g).to(dtype))


@pytest.mark.parametrize("V", [3, 16, 37, 128, 167])  # less than a vector, whole ones, several, with columns left
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
def test_a_step_on_both_paths(V: int, dtype: torch.dtype | None) -> None:
    q, k, v = token(V)
    before = None if dtype is None else state_of(V, dtype)
    out, after = linear_attention_step(q, k, v, before)
    with torch.no_grad():  # a Parameter goes the long way
        again, same = linear_attention_step(Parameter(q), k, v, before)
    assert torch.equal(out, again)
    assert all(torch.equal(a, b) for a, b in zip(after, same, strict=True))

    fq, fk = (torch.nn.functional.elu(x.double()) + 1 for x in (q, k))
    s, z = (0.0, 0.0) if before is None else before.to(dtype=torch.float64)
    s, z = s + fk[..., None] * v.double()[..., None, :], z + fk
    want = torch.einsum("bhf,bhfv->bhv", fq, s) / ((fq * z).sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(after.s.double(), s, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.z.double(), z, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("T", [1, 17])
def test_a_sequence_on_both_paths(T: int) -> None:
    q, k, v = (torch.stack([x * (t + 1) for t in range(T)], 1) for x in token(18))
    out, end = linear_attention(q, k, v, output_final_state=True)
    again, same = linear_attention(q, k, v, output_final_state=True, chunk_size=64)
    assert torch.equal(out, again)
    assert end is not None
    assert same is not None
    assert all(torch.equal(a, b) for a, b in zip(end, same, strict=True))


@needs_library
def test_which_step_is_usual() -> None:
    q, k, v = token(16)
    phi, state = resolve("elu", D), state_of(16)

    def run(q: Tensor = q, state: State | None = state, **changes: Any) -> object:
        how: dict[str, Any] = {"normalize": True, "scale": None, "eps": 1e-6, "backend": "auto"} | changes
        return run_usual_step(q, k, v, state, phi, **how)

    assert run() is not None
    assert run(state=None) is not None
    assert run(state=state.to(dtype=torch.float64), backend="native", scale=0.5) is not None
    wanted = state._replace(z=state.z.clone().requires_grad_())
    assert [run(backend="torch"), run(eps=-1.0), run(eps=0), run(normalize=1), run(scale=True)] == [None] * 5
    assert [run(q.bfloat16()), run(q.clone().requires_grad_()), run(state=wanted), run(q.to("meta"))] == [None] * 4
    with torch.no_grad():
        assert run(state=wanted) is not None
