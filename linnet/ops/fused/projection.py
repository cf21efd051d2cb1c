"""The projections before attention as one op: q, k and v from one product, q and k rotated by rotary positions.

    q, k, v = split(W x + b);   (q_i, q_{i+D/2}) -> (q_i cos - q_{i+D/2} sin, q_i sin + q_{i+D/2} cos), k likewise

The rotation is done in place on a block of tokens that is still in the cache (Su et al. 2021, arXiv:2104.09864). The
backward pass rotates the gradients back into one packed block, so that dx and dW are one product each.
E model width, D head width:  x [..., E]   weight [N,E]   cos, sin [..., D/2]: P rows, token r takes row r % P
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from ...native import memory, nn
from ..checks import check_memory
from ..native_allowed import BLOCK, SMALLEST, by_kernel, gradients, native, rows, wants_graph

NUMBERS = 1 << 18  # in a block of results: where they are narrow, a block has more tokens than `BLOCK`
Table: TypeAlias = "tuple[Tensor, Tensor]"  # cos, sin; P divides the number of tokens


def project(
    x: Tensor, weight: Tensor, bias: Tensor | None, widths: tuple[int, int, int], table: Table | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Map x [..., E] to q, k, v [..., width], views of one tensor; `table` rotates the heads of q and k."""
    try:
        if table is not None:
            table = rows(table[0]), rows(table[1])
        if x.numel() < SMALLEST or not native(x, weight, bias, *(table or ())):
            return _plain(x, weight, bias, widths=widths, table=table)
        if wants_graph(x, weight, bias):
            return _Project.apply(x, weight, bias, widths, table)
        return _split(_forward(x, weight, bias, widths, table), widths)
    except RuntimeError:  # torch names neither the tensor nor a way out
        cos, sin = table or (None, None)
        check_memory(x=x, weight=weight, bias=bias, cos=cos, sin=sin)
        raise


def turn(x: Tensor, table: Table) -> Tensor:
    """Rotate the heads along the last axis of x [..., H D], in plain torch."""
    cos, sin = table
    if x.numel() == 0:
        return x
    pairs = x.unflatten(-1, (-1, 2, cos.shape[1])).reshape(-1, cos.shape[0], *_heads(x, cos))  # [.,P,H,2,D/2]
    cos, sin = (t[:, None].to(x.dtype) for t in (cos, sin))
    first, second = pairs.unbind(-2)
    return torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-2).reshape(x.shape)


def rotate_heads(x: Tensor, table: Table) -> Tensor:
    """Rotate the heads of x [..., H, D]; cos, sin [..., D/2] as a layer receives them."""
    return turn(x.flatten(-2), (rows(table[0]), rows(table[1]))).view(x.shape)


def _heads(x: Tensor, cos: Tensor) -> tuple[int, int, int]:
    return x.shape[-1] // (2 * cos.shape[1]), 2, cos.shape[1]


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, widths: tuple[int, int, int], table: Table | None
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = F.linear(x, weight, bias).split(widths, dim=-1)
    return (q, k, v) if table is None else (turn(q, table), turn(k, table), v)


def _split(packed: Tensor, widths: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = packed.split(widths, dim=-1)
    return q, k, v


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, widths: tuple[int, int, int], table: Table | None
) -> Tensor:
    dense = rows(x)
    out, step = memory.empty(dense.shape[0], weight.shape[0]), max(BLOCK, NUMBERS // weight.shape[0])
    for start in range(0, dense.shape[0], step):
        part, given = out[start : start + step], dense[start : start + step]
        if bias is None:
            torch.mm(given, weight.t(), out=part)
        else:
            torch.addmm(bias, given, weight.t(), out=part)
        if table is not None:
            both = part[:, : widths[0] + widths[1]]
            nn.rotate(both, both, table, start)
    return out.view(*x.shape[:-1], -1)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Any, widths: Any, table: Any) -> Any:
        ctx.save_for_backward(x, weight, bias, *(table or ()))
        ctx.widths = widths
        return _split(_forward(x, weight, bias, widths, table), widths)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, weight, bias, *table = ctx.saved_tensors
        table = tuple(table) or None
        if not by_kernel(*grads):
            again = partial(_plain, widths=ctx.widths, table=table)
            return *gradients(again, (x, weight, bias), grads), None, None
        dx, dweight, dbias = _backward([rows(g) for g in grads], rows(x), weight, bias, ctx.widths, table)
        return dx.view(x.shape), dweight, dbias, None, None


def _backward(
    grads: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, widths: tuple[int, ...], table: Table | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    R, step = x.shape[0], max(BLOCK, NUMBERS // weight.shape[0])
    dx, dweight = memory.empty(*x.shape), torch.zeros_like(weight)
    dbias = None if bias is None else bias.new_zeros(len(bias))
    scratch = memory.fresh(min(step, R), weight.shape[0])
    turns = (table, table, None)
    for start in range(0, R, step):
        part = slice(start, min(start + step, R))
        packed = scratch[: part.stop - start]
        for into, g, one in zip(packed.split(widths, dim=1), grads, turns, strict=True):
            nn.rotate(into, g[part], one, start, back=True)
        torch.mm(packed, weight, out=dx[part])
        dweight.addmm_(packed.t(), x[part])
        if dbias is not None:
            nn.column_sums(packed, dbias)
    return dx, dweight, dbias
