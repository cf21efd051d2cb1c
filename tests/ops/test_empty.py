"""Nothing in, nothing out, and no complaint: sizes of 0 give on native what they give on torch, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.native import sample
from linnet.native.library import library
from linnet.native.matmul import matmul, pack
from linnet.ops import MatrixState, State, linear_attention, linear_attention_step, short_conv
from linnet.ops.conv.base_conv import base_conv
from linnet.ops.fused.cross_entropy import linear_cross_entropy
from linnet.ops.fused.mlp import mlp
from linnet.ops.fused.norm import layer_norm, rms_norm
from linnet.ops.fused.projection import project

needs_library = pytest.mark.skipif(library() is None, reason="the native library is not built")
SIZES = {  # B, T, H, D, V
    "no rows": (0, 3, 2, 4, 5),
    "no tokens": (2, 0, 2, 4, 5),
    "no heads": (2, 3, 0, 4, 5),
    "no values": (2, 3, 2, 4, 0),
    "one token, no values": (2, 1, 2, 4, 0),
    "no rows, no values": (0, 3, 2, 4, 0),
    "nothing at all": (0, 0, 0, 4, 0),
}


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=g).requires_grad_() for shape in shapes]


def answers(op: Any, given: list[Tensor]) -> list[Tensor]:
    """Outputs, states and every gradient; those of the states are 1."""
    out, state = op(*given)
    outs = [x for x in (out, *state) if x.requires_grad]
    grads = torch.autograd.grad(outs, given, [torch.ones_like(x) for x in outs], materialize_grads=True) if outs else ()
    return [out, *state, *grads]


def same(got: list[Tensor], want: list[Tensor]) -> None:
    assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


@needs_library
@pytest.mark.parametrize("kind", ["elu", "taylor"])
@pytest.mark.parametrize("sizes", SIZES)
def test_linear_attention(sizes: str, kind: str) -> None:
    B, T, H, D, V = SIZES[sizes]
    F = {"elu": D, "taylor": 1 + D + D * (D + 1) // 2}[kind]
    for causal, given in ((True, True), (True, False), (False, True)):
        qkv = [(B, T, H, D), (B, T, H, D), (B, T, H, V)]
        tensors = leaves(*qkv, *([(B, H, F, V), (B, H, F)] if given else []))

        def run(*xs: Tensor, causal: bool = causal, backend: str = "native") -> Any:
            state = State(*xs[3:]) if len(xs) > 3 else None
            how = {"causal": causal, "feature_map": kind, "output_final_state": True, "backend": backend}
            return linear_attention(*xs[:3], initial_state=state, **how)

        want = answers(lambda *xs, run=run: run(*xs, backend="torch"), tensors)
        same(answers(run, tensors), want)
        with torch.no_grad():
            same(answers(run, tensors), want[:3])


@needs_library
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [name for name, size in SIZES.items() if size[1]])
def test_a_step(sizes: str, wide: torch.dtype) -> None:
    B, _, H, D, V = SIZES[sizes]
    q, k, v, s, z = (x.detach() for x in leaves((B, H, D), (B, H, D), (B, H, V), (B, H, D, V), (B, H, D)))
    for state in (None, State(s.to(wide), z.to(wide))):
        found = [linear_attention_step(q, k, v, state, backend=name) for name in ("native", "torch")]
        same([found[0][0], *found[0][1]], [found[1][0], *found[1][1]])


@needs_library
@pytest.mark.parametrize("lengths", [[0], [0, 0], [0, 3, 0], [2, 0, 1]])
def test_packed_sequences_without_tokens(lengths: list[int]) -> None:
    T, S = sum(lengths), len(lengths)
    cu = torch.tensor([0, *lengths]).cumsum(0)
    for V in (5, 0):
        tensors = leaves((1, T, 2, 4), (1, T, 2, 4), (1, T, 2, V), (S, 2, 4, V), (S, 2, 4))

        def run(*xs: Tensor, backend: str = "native") -> Any:
            how = {"cu_seqlens": cu, "output_final_state": True, "backend": backend}
            return linear_attention(*xs[:3], initial_state=State(*xs[3:]), **how)

        same(answers(run, tensors), answers(lambda *xs, run=run: run(*xs, backend="torch"), tensors))


SCANS: dict[str, Any] = {  # B, T, E, N -> inputs and, last, the state
    "selective_scan": lambda B, T, E, N: [(B, T, E), (B, T, E), (E, N), (B, T, N), (B, T, N), (B, E, N, 1)],
    "wkv": lambda B, T, E, N: [(B, T, E), (B, T, E), (E,), (E,), (B, 1, 3, E)],
}


@needs_library
@pytest.mark.parametrize("sizes", [(0, 3, 4, 2), (2, 0, 4, 2), (2, 3, 0, 2), (2, 3, 4, 0), (2, 1, 0, 2), (0, 0, 0, 0)])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str, sizes: tuple[int, ...]) -> None:
    def run(*xs: Tensor, backend: str = "native") -> Any:
        state = MatrixState(xs[-1])
        xs = (
            (xs[0], xs[1].exp(), -xs[2].exp(), *xs[3:]) if name == "selective_scan" else (*xs[:2], xs[2].exp(), *xs[3:])
        )
        out, end = getattr(linnet, name)(*xs[:-1], initial_state=state, output_final_state=True, backend=backend)
        return out, (end.s,)

    given = leaves(*SCANS[name](*sizes))
    same(answers(run, given), answers(lambda *xs: run(*xs, backend="torch"), given))


ROWS: dict[str, Any] = {  # x [..., 64] without rows
    "layer_norm": (layer_norm, [(64,), (64,)]),
    "rms_norm": (rms_norm, [(64,)]),
    "mlp": (mlp, [(96, 64), (96,), (64, 96), (64,)]),
    "project": (lambda x, w, b: project(x, w, b, (64, 64, 32)), [(160, 64), (160,)]),
    "short_conv": (lambda x, w, b: short_conv(x, w, b)[0], [(64, 3), (64,)]),
    "base_conv": (base_conv, [(64, 3), (64,), (64, 64), (64,)]),
    "cross_entropy": (
        lambda x, w, b: linear_cross_entropy(x, w, b, torch.zeros(x.shape[:-1], dtype=torch.long))[0], [(9, 64), (9,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("lead", [(0, 5), (2, 0)])
@pytest.mark.parametrize("name", ROWS)
def test_ops_on_no_rows(name: str, lead: tuple[int, int]) -> None:
    """Against float64, which no kernel takes."""
    op, shapes = ROWS[name]
    given = leaves((*lead, 64), *shapes)
    both = []
    for dtype in (torch.float32, torch.float64):
        xs = [x.detach().to(dtype).requires_grad_() for x in given]
        out = op(*xs)
        outs = [out] if isinstance(out, Tensor) else [*out]
        grads = torch.autograd.grad(outs, xs, [torch.ones_like(x) for x in outs], materialize_grads=True)
        both.append([x.double() for x in (*outs, *grads)])
    same(*both)


@needs_library
def test_products_and_draws_of_no_rows() -> None:
    for kind in ("float32", "bfloat16", "int8"):
        assert matmul(pack(torch.ones(3, 4), torch.ones(3), kind), torch.empty(0, 4)).shape == (0, 3)
    for mixture, width in ((True, 30), (False, 17)):
        drawn = sample.choose(torch.empty(0, width), torch.empty(0, 2, dtype=torch.float64), 17, mixture)
        assert (drawn.shape, drawn.dtype) == ((0,), torch.long)
