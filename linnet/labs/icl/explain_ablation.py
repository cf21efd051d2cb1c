"""Ablate each omega: remove it from every layer, without and with a refit.

    G = sum_k P_k S Q_k = [[A, b], [cᵀ, e]]      without xx: A = 0    xy: b = 0    yx: c = 0    yy: e = 0, in all layers

For DIAG this sets the omega itself to 0; for FULL it removes the whole block, and the remaining blocks can take over
much of its role. The other weights were trained with the block in place, so the loss without a refit overstates its
importance. The refit fades the block out and minimises ½|w - oracle|² over all weights with L-BFGS at every stage; the
scores are on held-out sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...regress.model import ICLTransformer
from .evaluate import Score, oracle, score
from .noise import Noise
from .regression import Batch, Regression

WITHOUT: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "xx": ("xx",),
    "xy": ("xy",),
    "yx": ("yx",),
    "yy": ("yy",),
    "xy and yy": ("xy", "yy"),
}
PLACES: dict[str, Any] = {"xx": (slice(-1), slice(-1)), "xy": (slice(-1), -1), "yx": (-1, slice(-1)), "yy": (-1, -1)}
FADE = {0.5: 20, 0.0: 60}  # remaining share of the block at each stage, and its L-BFGS iterations
BOUND, FAR = 1e3, 1e6  # of ½|w - oracle|² of one sequence: the most it contributes, and where its gradient is dropped
SEEN = {"full": 4096, "diag": 2048, "gd++": 2048}  # sequences to refit on: FULL has many more weights


@dataclass(frozen=True)
class Ablation:
    """The score without some omegas, as trained and refitted; `refit` is None where nothing is left to learn."""

    without: str
    plain: Score
    refit: Score | None


def ablate(
    model: ICLTransformer,
    noise: Noise,
    sequences: int = 10_000,
    seed: int = 0,
    report: Callable[[float], None] | None = None,
) -> list[Ablation]:
    """Score the model without each omega that its kind has; `report` receives the fraction done, 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    problem = Regression(noise, model.config.d, model.config.n)
    seen, fresh = (problem.sample(count, generator) for count in (SEEN[model.config.kind], sequences))
    kept = {name: gone for name, gone in WITHOUT.items() if model.config.kind != "gd++" or not {"xy", "yy"} & {*gone}}
    rows = []
    for done, (name, gone) in enumerate(kept.items()):
        plain = _score(model, gone, fresh)
        refit = None if "yx" in gone else _score(refitted(model, gone, seen), gone, fresh)  # w = 0 without yx
        rows.append(Ablation(name, plain, refit))
        if report is not None:
            report((done + 1) / len(kept))
    return rows


def mask(size: int, gone: tuple[str, ...], left: float = 0.0) -> Tensor:
    """Return [E,E]: `left` on the removed blocks, 1 elsewhere."""
    factor = torch.ones(size, size, dtype=torch.float64)
    for name in gone:
        factor[PLACES[name]] = left
    return factor


def masked_weights(model: ICLTransformer, s: Tensor, factor: Tensor) -> Tensor:
    """Return w [B,d] from s [B,E,E] where the map of every layer is G * factor [E,E]."""
    maps: list[Tensor] = []
    for layer in _layers(model):
        g = _map(layer, s) * factor
        maps.append(g)
        if len(maps) < model.config.layers:
            s = s + g @ s
            s = s + s @ g.mT
    row = maps[-1][..., -1:, :] + torch.eye(s.shape[-1], dtype=s.dtype)[-1]  # [B,1,E]
    for g in reversed(maps[:-1]):
        row = row + row @ g
    return -row[..., 0, :-1]


def _layers(model: ICLTransformer) -> list[tuple[Tensor, ...]]:
    """Return (P, Q) of each layer, [K,E,E]; for diagonal matrices (omega [E,E],): G is S times a number per block."""
    if model.config.kind == "full":
        return list(zip(*model.matrices(), strict=True))
    block = torch.tensor([0] * model.config.d + [1])
    return [(omega[block][:, block],) for omega in model.omega()]


def _map(layer: tuple[Tensor, ...], s: Tensor) -> Tensor:
    if len(layer) == 1:
        return s * layer[0]
    heads = [(s @ p.mT).mT @ q for p, q in zip(*layer, strict=True)]  # S is symmetric: (S Pᵀ)ᵀ = P S
    return torch.stack(heads).sum(0)


def refitted(model: ICLTransformer, gone: tuple[str, ...], seen: Batch) -> ICLTransformer:
    """Return a refitted copy, or the model itself where that is better on the training sequences."""
    s, best = seen.gram.s, oracle(seen)
    copy = deepcopy(model)
    for left, iterations in FADE.items():
        _lower(copy, s, best, mask(model.config.d + 1, gone, left), iterations)
    with torch.no_grad():
        losses = [float(loss(one, s, best, mask(model.config.d + 1, gone))) for one in (model, copy)]
    return copy if losses[1] < losses[0] else model


def loss(model: ICLTransformer, s: Tensor, best: Tensor, factor: Tensor) -> Tensor:
    """Return the mean of ½|w - best|², saturating so that no exploding sequence contributes more than BOUND."""
    gap = (masked_weights(model, s, factor) - best).square().sum(-1) / 2  # [B]
    near = gap < FAR  # False where it is NaN
    if not bool(near.all()):  # the gradient of the others is useless and would spoil the rest
        gap = (masked_weights(model, s[near], factor) - best[near]).square().sum(-1) / 2
    return ((gap / (1 + gap / BOUND)).sum() + BOUND * (~near).sum()) / len(s)


def _lower(model: ICLTransformer, s: Tensor, best: Tensor, factor: Tensor, iterations: int) -> None:
    """Run L-BFGS on all weights of the model."""
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=iterations, history_size=20, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(model, s, best, factor)
        value.backward()
        return value

    optimiser.step(closure)


def _score(model: ICLTransformer, gone: tuple[str, ...], batch: Batch) -> Score:
    with torch.no_grad():
        return score(masked_weights(model, batch.gram.s, mask(model.config.d + 1, gone)), batch)
