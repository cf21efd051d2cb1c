"""Levenberg-Marquardt (1944, 1963): second-order minimisation, for models with few parameters or no noise.

    (A + mu diag A) step = g,   A = mean JᵀJ,   g = mean Jᵀr,   r = prediction - target

The loss is mean 1/2 |r|², tempered: where a sequence's loss l is over c it counts as c (1 + log(l / c)), so that a few
sequences on which the polynomial explodes cannot hide the rest. c is temper x the median loss, and at most `most`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .engine import Pool, answers, jacobian

CHUNK_BYTES = 64 << 20  # size limit of a Jacobian
TRIES = 8
HUGE = 1e12  # sequences with a larger loss are left out of the normal equations


class Minimum(NamedTuple):
    p: Tensor
    q: Tensor
    loss: float  # tempered mean on the pool


def minimise(
    pool: Pool,
    p: Tensor,
    q: Tensor,
    *,
    frozen: Tensor | None = None,
    iterations: int = 30,
    temper: float = math.inf,
    most: float = math.inf,
    tolerance: float = 1e-3,
    damping: float = 1e-2,
) -> Minimum:
    """Take steps until one gains less than `tolerance` of the loss, none helps, or `iterations` are done."""
    half, free = p.numel(), None if frozen is None else frozen == 0
    limit = min(most, _limit(pool, p, q, temper))
    best = mean_loss(pool, p, q, limit)
    for _ in range(iterations):
        matrix, slope = _normal_equations(pool, p, q, limit, free)
        diagonal = matrix.diagonal().clamp(min=float(matrix.diagonal().max()) * 1e-10)
        for _ in range(TRIES):
            change = _solve(matrix, diagonal * damping, slope)
            x = torch.cat([p.flatten(), q.flatten()])
            x[slice(None) if free is None else free] -= change
            new_p, new_q = x[:half].view_as(p).contiguous(), x[half:].view_as(q).contiguous()
            loss = mean_loss(pool, new_p, new_q, limit)
            if loss < best:
                break
            damping *= 4
        else:
            break
        gain, p, q, damping = 1 - loss / best, new_p, new_q, max(damping * 0.3, 1e-12)
        limit = min(limit, _limit(pool, p, q, temper))
        best = mean_loss(pool, p, q, limit)
        if gain < tolerance:
            break
    return Minimum(p, q, best)


def each_loss(pool: Pool, p: Tensor, q: Tensor) -> Tensor:
    """Return 1/2 |prediction - target|² of every sequence."""
    return 0.5 * ((answers(pool, p, q) - pool.target) ** 2).sum(-1)


def mean_loss(pool: Pool, p: Tensor, q: Tensor, limit: float = math.inf) -> float:
    """Return the tempered mean; infinity if a prediction is not finite."""
    each = each_loss(pool, p, q)
    if math.isfinite(limit):
        each = torch.where(each > limit, limit * (1 + (each / limit).log()), each)
    mean = float((each * pool.weight).sum() / pool.weight.sum())
    return mean if math.isfinite(mean) else math.inf


def _limit(pool: Pool, p: Tensor, q: Tensor, temper: float) -> float:
    return math.inf if math.isinf(temper) else max(temper * float(each_loss(pool, p, q).nanmedian()), 1e-300)


def _solve(matrix: Tensor, ridge: Tensor, slope: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(matrix + torch.diag(ridge))
    if int(failed):
        return torch.full_like(slope, math.nan)  # no step: more damping
    return torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1)


def _normal_equations(pool: Pool, p: Tensor, q: Tensor, limit: float, free: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return A and g, summed over chunks of sequences."""
    parameters = p.numel() + q.numel()
    chunk = max(CHUNK_BYTES // (8 * parameters * pool.target.shape[-1]) // 16, 1) * 16
    size = parameters if free is None else int(free.sum())
    matrix, slope = torch.zeros(size, size, dtype=p.dtype), torch.zeros(size, dtype=p.dtype)
    for first in range(0, len(pool), chunk):
        last = min(first + chunk, len(pool))
        w, rows = jacobian(pool, first, last, p, q)
        rest = w - pool.target[first:last]
        loss = 0.5 * (rest**2).sum(-1)
        sane = (loss < HUGE) & torch.isfinite(rows).all(-1).all(-1)
        weight = torch.where(sane, pool.weight[first:last] * (limit / loss).clamp(max=1.0), 0.0)
        rows = torch.where(sane[:, None, None], rows, 0.0) if not bool(sane.all()) else rows
        rest = torch.where(sane[:, None], rest, 0.0)
        rows = (rows if free is None else rows[..., free]) * weight.sqrt()[:, None, None]
        flat = rows.flatten(0, 1)
        matrix += flat.T @ flat
        slope += flat.T @ (rest * weight.sqrt()[:, None]).flatten()
    return matrix / pool.weight.sum(), slope / pool.weight.sum()
