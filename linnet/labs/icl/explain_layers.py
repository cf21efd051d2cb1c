"""Read each layer of an in-context transformer as one optimiser step, in numbers measured on sampled sequences.

With G = [[A, b], [cᵀ, e]] the map of a layer and (M, u, a, w) the trace before it (linnet/labs/icl/recursion.py),

    w' = (1 + e) w - Mᵀc        g = a alpha - Sigma w, half the direction of steepest descent of sum (a y - <w, x>)²

    condition   of Sigma of the layer's tokens, before and after it: x' = (I + A) x conditions the problem
    spectrum    smallest, median, largest eigenvalue of I + A (of its symmetric part if A is not symmetric)
    step        <-Mᵀc, g> / <g, g>: how far along g the prediction moves; gradient descent on n = 20, d = 10 takes 0.03
    momentum    the part of step due to u, -a rho omega_yx Mᵀu (Lemma 4.4), rho the residual sum of squares of OLS
    rescale     1 + e = 1 + omega_yy lambda         adapt   1 + omega_xy lambda, a factor on later steps

Vladymyrov et al. 2024 (arXiv:2402.14180), sections 4 and 5. L layers, B sequences, E = d + 1. The omegas of a layer are
measured: the numbers for which omega * S is nearest to G, block by block. For DIAG and GD++ they are the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...regress.gram import Gram
from ...regress.model import ICLTransformer
from .evaluate import oracle
from .noise import Noise
from .recursion import Trace, apply, nearest_diag, trace
from .regression import Batch, Regression

NAMES = ("xx", "xy", "yx", "yy")
FLAT = 1e-9  # of |alpha|: a gradient this small has no direction to measure a step along


class Run(NamedTuple):
    """A forward pass of sequences with one sigma: g [L,B,E,E], s [L+1,B,E,E], oracle [B,d]."""

    sigma: float
    batch: Batch
    gram: Gram
    g: Tensor
    s: Tensor
    trace: Trace
    oracle: Tensor


@dataclass(frozen=True)
class AtSigma:
    """A layer at one noise level: medians over the sequences; `gap` is the mean ½|w - oracle|² after it."""

    sigma: float
    condition: float
    condition_after: float
    spectrum: tuple[float, float, float]
    step: float
    momentum: float
    rescale: float
    adapt: float
    moved: float  # |w' - w| / |oracle|
    a: float  # a, |u|, |w| and |M - I| after the layer
    u: float
    w: float
    m: float
    gap: float


@dataclass(frozen=True)
class Layer:
    """One layer; `nearest` and `residual` describe the weights of a FULL model and are None for the others."""

    number: int  # from 1
    omega: tuple[float, float, float, float]
    dead: tuple[str, ...]  # the omegas that no prediction depends on
    nearest: tuple[float, ...] | None
    residual: float | None
    at: tuple[AtSigma, ...]  # low noise first


def noise_levels(noise: Noise) -> tuple[float, ...]:
    """Return the least and the most noise of a distribution, one number if they are equal."""
    low = 0.0 if noise.kind == "uniform" else min(noise.values)
    return (low,) if low == noise.largest else (low, noise.largest)


def run_at(model: ICLTransformer, sigma: float, sequences: int, seed: int) -> Run:
    """Run sequences at one sigma, without those whose numbers overflow."""
    generator = torch.Generator().manual_seed(seed)
    batch = Regression(Noise("fixed", (sigma,)), model.config.d, model.config.n).sample(sequences, generator)
    with torch.no_grad():
        g = model.maps(batch.gram.s)
    s = sums(g, batch.gram.s)
    kept = torch.isfinite(s).all(-1).all(-1).all(0) & torch.isfinite(g).all(-1).all(-1).all(0)  # [B]
    if not bool(kept.any()):
        raise ValueError(f"all {sequences} sequences overflow at sigma = {sigma:g}; explain this model with less noise")
    batch = Batch(*(value[kept] for value in batch))
    gram = batch.gram
    with torch.no_grad():
        return Run(sigma, batch, gram, g[:, kept], s[:, kept], trace(model, gram.s), oracle(batch))


def sums(g: Tensor, s: Tensor) -> Tensor:
    """Return S before the first and after each layer, [L+1,B,E,E]: S <- (I + G) S (I + G)ᵀ."""
    layers = [s]
    for g_l in g:
        s = s + g_l @ s
        s = s + s @ g_l.mT
        layers.append(s)
    return torch.stack(layers)


def read_layers(model: ICLTransformer, runs: list[Run]) -> list[Layer]:
    """Return every layer of the model, from runs at one or more noise levels."""
    measured = measured_omega(runs)
    nearest, residual = _nearest(model) if model.config.kind == "full" else (None, None)
    layers = []
    for index in range(model.config.layers):
        x, y = (measured[index, row].tolist() for row in (0, 1))
        layers.append(
            Layer(
                number=index + 1,
                omega=(x[0], x[1], y[0], y[1]),
                dead=dead_omegas(model.config.layers, index),
                nearest=None if nearest is None else tuple(nearest[index].flatten().tolist()),
                residual=None if residual is None else float(residual[index]),
                at=tuple(_at(run, index, float(measured[index, 1, 0]), float(measured[index, 0, 1])) for run in runs),
            )
        )
    return layers


def _nearest(model: ICLTransformer) -> tuple[Tensor, Tensor]:
    """Return the nearest DIAG model of a FULL one, ignoring the part of the last layer that nothing reads."""
    with torch.no_grad():
        p, q = model.matrices()
        live = p.clone()
        live[-1, :, :-1] = 0
        return nearest_diag(live, q)


def dead_omegas(layers: int, index: int) -> tuple[str, ...]:
    """Return the omegas without effect: nothing reads x after the last layer, and y = 0 at the query of layer 1."""
    if index < layers - 1:
        return ()
    return ("xx", "xy", "yy") if layers == 1 else ("xx", "xy")


def measured_omega(runs: list[Run]) -> Tensor:
    """Return [L,2,2]: the factor on S nearest to G, per block, over all sequences of all runs."""
    g, s = torch.cat([run.g for run in runs], 1), torch.cat([run.s[:-1] for run in runs], 1)  # [L,B,E,E]
    x, y = slice(None, -1), slice(-1, None)
    blocks = [(g[..., row, column], s[..., row, column]) for row in (x, y) for column in (x, y)]
    ratios = [(a * b).sum((1, 2, 3)) / b.square().sum((1, 2, 3)) for a, b in blocks]
    return torch.stack(ratios, -1).unflatten(-1, (2, 2))


def _at(run: Run, index: int, yx: float, xy: float) -> AtSigma:
    m, u, a, w = (value[index] for value in run.trace)
    m_next, u_next, a_next, w_next = (value[index + 1] for value in run.trace)
    g, lam = run.g[index], run.s[index][..., -1, -1]
    down = a.unsqueeze(-1) * run.gram.alpha - apply(run.gram.sigma, w)  # [B,d]
    moved = -apply(m.mT, g[..., -1, :-1])
    by_u = -(a * left_over(run.gram) * yx).unsqueeze(-1) * apply(m.mT, u)
    flat = down.norm(dim=-1) <= FLAT * run.gram.alpha.norm(dim=-1)
    along = [(part * down).sum(-1) / down.square().sum(-1).masked_fill(flat, torch.nan) for part in (moved, by_u)]
    return AtSigma(
        sigma=run.sigma,
        condition=middle(conditions(run, index)),
        condition_after=middle(conditions(run, index + 1)),
        spectrum=spectrum(g[..., :-1, :-1]),
        step=middle(along[0]),
        momentum=middle(along[1]),
        rescale=middle(1 + g[..., -1, -1]),
        adapt=middle(1 + xy * lam),
        moved=middle((w_next - w).norm(dim=-1) / run.oracle.norm(dim=-1)),
        a=middle(a_next),
        u=middle(u_next.norm(dim=-1)),
        w=middle(w_next.norm(dim=-1)),
        m=middle((m_next - torch.eye(m.shape[-1], dtype=m.dtype)).flatten(-2).norm(dim=-1)),
        gap=float((w_next - run.oracle).square().sum(-1).mean() / 2),
    )


def middle(values: Tensor) -> float:
    return float(values.nanmedian())


def conditions(run: Run, index: int) -> Tensor:
    """Return [B]: largest over smallest eigenvalue of Sigma at a layer, in the directions that n examples span."""
    values = torch.linalg.eigvalsh(run.s[index][..., :-1, :-1])[..., -min(run.gram.d, run.batch.x.shape[-2]) :]
    return values[..., -1] / values[..., 0].clamp_min(torch.finfo(values.dtype).tiny)


def spectrum(a: Tensor) -> tuple[float, float, float]:
    """Return the medians over sequences of the smallest, median and largest eigenvalue of I + A."""
    values = 1 + torch.linalg.eigvalsh((a + a.mT) / 2)  # [B,d]
    return middle(values[..., 0]), middle(values.flatten()), middle(values[..., -1])


def left_over(gram: Gram) -> Tensor:
    """Return rho [B], the residual sum of squares of least squares."""
    fitted = apply(torch.linalg.pinv(gram.sigma, hermitian=True), gram.alpha)
    return (gram.lam - (fitted * gram.alpha).sum(-1)).clamp_min(0)
