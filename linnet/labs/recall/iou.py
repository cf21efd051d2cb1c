"""Attention IoU: how much of a query's attention lies on the value it has to recall.

    a = |A| over the context, each row divided by its sum        g = 1 at the requested value, 0 elsewhere
    p = a at the value        soft IoU = sum min(a, g) / sum max(a, g), which is p / (2 - p) where p is the mean
    hit = the largest of a row is the value        entropy = -sum a log a, in nats: 0 a single peak, log N_c even

Aksenov et al. 2024, arXiv:2402.10644, report an IoU without its formula; weighted Jaccard is the interpretation that
fits. Maps of the delta rule and its relatives can be negative: the magnitude of a weight counts, not its sign.
B rows, H heads, T time, Q queries of a row, N_c tokens of context:  maps [B,H,T,T]   queries, values [B,Q]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Look:
    """One head, or the mean of all: means over queries, except the IoU, a quotient of sums over all queries."""

    p: float
    iou: float
    hit: float
    entropy: float | None  # over the queries that give the context any weight; None if there are none
    empty: float  # share of queries that give it no weight: they count with p = 0


@dataclass(frozen=True)
class Looks:
    """`mean` is measured on the normalised rows averaged over heads."""

    mean: Look
    heads: tuple[Look, ...]
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: lists for tuples."""
        return {**asdict(self), "heads": [asdict(head) for head in self.heads]}


def attention_iou(maps: Tensor, queries: Tensor, values: Tensor, context: int) -> Looks:
    """Measure how well maps [B,H,T,T] point from the positions `queries` to the positions `values`, both [B,Q].

    `context`: a query may attend to the first `context` columns; the requested value is among them.
    """
    _check(maps, queries, values, context)
    B, Q = queries.shape
    rows = maps.detach()[torch.arange(B, device=maps.device)[:, None], :, queries, :context]  # [B,Q,H,N_c]
    a = rows.double().abs().flatten(0, 1).transpose(0, 1)  # [H,BQ,N_c]
    total = a.sum(-1, keepdim=True)
    a = torch.where(total > 0, a / torch.where(total > 0, total, 1.0), 0.0)
    asked = values.flatten()  # [BQ]
    return Looks(_look(a.mean(0), asked), tuple(_look(head, asked) for head in a), B * Q)


def _look(a: Tensor, asked: Tensor) -> Look:  # [BQ,N_c], [BQ]
    g = torch.nn.functional.one_hot(asked, a.shape[-1]).to(a.dtype)
    seen = a.sum(-1) > 0
    p = (a * g).sum(-1)
    entropy = -torch.special.xlogy(a, a).sum(-1)[seen]
    return Look(
        p=float(p.mean()),
        iou=float(torch.minimum(a, g).sum() / torch.maximum(a, g).sum()),
        hit=float(((a.argmax(-1) == asked) & seen).double().mean()),
        entropy=float(entropy.mean()) if len(entropy) else None,
        empty=float((~seen).double().mean()),
    )


def _check(maps: Tensor, queries: Tensor, values: Tensor, context: int) -> None:
    if maps.ndim != 4 or maps.shape[2] != maps.shape[3] or not maps.shape[1]:
        raise ValueError(f"maps have shape {list(maps.shape)}; accepted: [batch, heads, time, time]")
    if queries.ndim != 2 or queries.shape != values.shape or len(queries) != len(maps) or not queries.numel():
        got = f"queries {list(queries.shape)}, values {list(values.shape)}"
        raise ValueError(f"{got} for {len(maps)} maps; accepted: positions [batch, queries], one or more, of one shape")
    if not 1 <= context <= maps.shape[3]:
        raise ValueError(f"context is {context}; accepted: 1 to the length of the maps, {maps.shape[3]}")
    for name, where, most in (("queries", queries, maps.shape[2]), ("values", values, context)):
        if int(where.min()) < 0 or int(where.max()) >= most:
            got = f"{int(where.min())} to {int(where.max())}"
            raise ValueError(f"{name} are at positions {got}; accepted: from 0 to {most - 1}")
