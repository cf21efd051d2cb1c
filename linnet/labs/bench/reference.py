"""The float64 reference of each competitor, from the definition, on as many tokens as affordable.

    out_t = sum_{j<=t} kappa(q_t, k_j) v_j / (sum_{j<=t} kappa(q_t, k_j) + eps)

elu: kappa = phi(q).phi(k), phi = elu + 1. taylor: 1 + s + s^2/2, s = q.k / sqrt(D). square: (q.k)^2 / D, and rebased
the same after a layer norm over all heads. softmax: exp(q.k / sqrt(D)), eps 0. The last batch row is compared, all its
heads: every token up to `FULL`; above that out and dq of the first `HEAD` tokens, and out, dq, dk and dv of the last
`TAIL`, which need only their rows of scores.
R rows, S keys seen, H heads:  q, g [R,H,.]   k, v [S,H,.]   scores [H,R,S]
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from .inputs import Inputs

FULL, HEAD, TAIL = 512, 64, 16
TOLERANCE = 2e-5  # of the largest number in the reference, float32
# The scores of these can be 0, so that the first tokens divide by almost nothing: ten times the tolerance.
VANISHING = ("square", "rebased")
EPS = 1e-6


class Piece(NamedTuple):
    """The reference for tokens [start, stop): out and the gradients; None where these rows do not determine them."""

    start: int
    stop: int
    out: Tensor
    dq: Tensor
    dk: Tensor | None
    dv: Tensor | None


def scores(kernel: str, q: Tensor, k: Tensor) -> Tensor:  # [R,H,D], [S,H,D] -> [H,R,S]
    D = q.shape[-1]
    if kernel == "elu":
        q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    if kernel == "rebased":
        q, k = (torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5) for x in (q, k))
    dots = torch.einsum("rhd,shd->hrs", q, k)
    if kernel == "elu":
        return dots
    if kernel == "softmax":
        return (dots / sqrt(D)).exp()
    if kernel == "taylor":
        dots = dots / sqrt(D)
        return 1 + dots + dots**2 / 2
    return dots**2 / D


def attend(kernel: str, q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """Return rows start, start + 1, ... of the output; k and v are those of tokens 0 to the last row."""
    seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).tril(start)
    a = torch.where(seen, scores(kernel, q, k), 0.0)
    den = a.sum(-1).T[..., None] + (0.0 if kernel == "softmax" else EPS)  # [R,H,1]
    return torch.einsum("hrs,shv->rhv", a, v) / den


def piece(kernel: str, given: tuple[Tensor, ...], start: int, stop: int, with_keys: bool) -> Piece:
    q, k, v, g = (x[-1, :stop].double() for x in given)  # [S,H,.]
    rows = [x[start:].clone().requires_grad_() for x in (q, k, v)]
    out = attend(kernel, rows[0], torch.cat([k[:start], rows[1]]), torch.cat([v[:start], rows[2]]), start)
    dq, dk, dv = torch.autograd.grad(out, rows, g[start:])
    return Piece(start, stop, out.detach(), dq, *((dk, dv) if with_keys else (None, None)))


def expected(kernel: str, inputs: Inputs) -> list[Piece]:
    """Return the reference of a kernel, cached with the inputs."""
    if kernel not in inputs.references:
        T = inputs.bthd[0].shape[1]
        parts = [(0, T, True)] if T <= FULL else [(0, HEAD, False), (T - TAIL, T, True)]
        inputs.references[kernel] = [piece(kernel, inputs.bthd, *part) for part in parts]
    return inputs.references[kernel]


def error(kernel: str, inputs: Inputs, layout: str, result: tuple[Tensor, ...]) -> float:
    """Return the largest difference of `result` (out, or out, dq, dk, dv), relative to the largest entry of each."""
    worst = 0.0
    for start, stop, *wanted in expected(kernel, inputs):
        for actual, want in zip(result, wanted, strict=False):
            if want is not None:
                last = actual[-1].transpose(0, 1) if layout == "bhtd" else actual[-1]
                worst = max(worst, relative(last[start:stop], want))
    return worst


def tolerance(kernel: str) -> float:
    return 10 * TOLERANCE if kernel in VANISHING else TOLERANCE


def relative(actual: Tensor, want: Tensor) -> float:
    """Return the largest difference relative to the largest entry; inf if anything is not finite."""
    off = (actual.detach().double() - want).abs().max() / want.abs().max()
    return float(off) if torch.isfinite(off) else float("inf")


def last_outputs(q: Tensor, k: Tensor, v: Tensor, *, rows: int, block: int = 65536) -> Tensor:
    """Return the last `rows` outputs of a very long elu sequence [T,H,.], summing `block` keys at a time."""
    T, H, V = v.shape
    num, den = torch.zeros(rows, H, V, dtype=torch.float64), torch.zeros(rows, H, 1, dtype=torch.float64)
    late = q[T - rows :].double()
    for start in range(0, T, block):
        stop = min(start + block, T)
        seen = torch.ones(rows, stop - start, dtype=torch.bool).tril(T - rows - start)
        a = torch.where(seen, scores("elu", late, k[start:stop].double()), 0.0)
        num += torch.einsum("hrs,shv->rhv", a, v[start:stop].double())
        den += a.sum(-1).T[..., None]
    return num / (den + EPS)
