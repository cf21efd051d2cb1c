"""The short path of the gated ops: the same bits as the long one, and only for calls that need no closer look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from linnet.native.gated import Inputs
from linnet.native.library import library
from linnet.ops.gated import decay, delta, wkv7
from linnet.ops.gated.usual import usual
from linnet.ops.prologue import Contract
from linnet.ops.state import MatrixState

B, H, D, V = 2, 3, 16, 20
needs_library = pytest.mark.skipif(library() is None, reason="no native library")


def inputs(T: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(T)
    q, k, w, rate = (torch.randn(B, T, H, D, generator=g) for _ in range(4))
    return {
        "q": q, "k": normalize(k, dim=-1), "v": torch.randn(B, T, H, V, generator=g), "fade": -rate.abs(),
        "remove": normalize(w, dim=-1), "rate": rate.sigmoid(), "beta": torch.rand(B, T, H, generator=g),
    }  # fmt: skip


CALLS: dict[str, tuple[int, tuple[str, ...], Callable[..., Any]]] = {
    "gla": (decay.CHUNK, ("q", "k", "v", "fade"), decay.decayed_attention),
    "delta": (delta.CHUNK, ("q", "k", "v", "beta"), delta.delta_rule),
    "kda": (delta.CHUNK, ("q", "k", "v", "beta", "fade"), delta.delta_rule),
    "wkv7": (wkv7.CHUNK, ("q", "fade", "k", "v", "remove", "rate"), wkv7.wkv7),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("T", [1, 15, 16, 17, 128, 130])
def test_both_paths_give_the_same_bits(name: str, T: int) -> None:
    chunk, names, op = CALLS[name]
    results = []
    for size in (chunk, chunk + 1):  # another chunk size is not usual, and nothing to the kernel
        given = [inputs(T)[n].requires_grad_() for n in names]
        start = MatrixState(torch.ones(B, H, D, V).requires_grad_())
        out, end = op(*given, chunk_size=size, initial_state=start, output_final_state=True)
        free, _ = op(*given, chunk_size=size)
        grads = torch.autograd.grad((out.sin().sum() + free.cos().sum() + end.s.sin().sum()), [*given, start.s])
        results.append((out, free, end.s, *grads))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@needs_library
def test_what_is_usual() -> None:
    x = inputs(8)
    given = Inputs(x["q"], x["k"], x["v"], x["fade"])
    how = Contract(None, False, None, None, "auto", "auto", decay.CHUNK)
    state = MatrixState(torch.zeros(B, H, D, V))
    assert usual(given, how, decay.CHUNK) is not None
    assert usual(given, how._replace(initial_state=state), decay.CHUNK) is not None
    others = [
        how._replace(mask=torch.ones(B, 8, dtype=torch.bool)), how._replace(cu_seqlens=[0, 8]),
        how._replace(backend="torch"), how._replace(form="parallel"), how._replace(chunk_size=7),
        how._replace(initial_state=state.to(dtype=torch.float64)), how._replace(initial_state=state.select([0])),
        how._replace(output_final_state=1),
    ]  # fmt: skip
    assert [usual(given, other, decay.CHUNK) for other in others] == [None] * len(others)
    odd = [
        given._replace(q=x["q"].bfloat16()), given._replace(decay=x["fade"][:1]), given._replace(v=x["v"][:, :7]),
        given._replace(k=x["k"][..., :8]), given._replace(q=x["q"].to_sparse()), given._replace(v=x["v"].to("meta")),
    ]  # fmt: skip
    assert [usual(other, how, decay.CHUNK) for other in odd] == [None] * len(odd)
