"""What each omega is worth: it is taken out of every layer, without a refit and with one.

    G = sum_k P_k S Q_k = [[A, b], [cᵀ, e]]      without xx: A = 0    xy: b = 0    yx: c = 0    yy: e = 0, in all layers

For DIAG that is the same as setting the omega itself to 0; for FULL it takes out the whole block, and the blocks left
can take over much of what it did. The other weights were trained with the block in place, so the loss without a refit
overstates what it is worth. The refit fades the block out and lets L-BFGS lower ½|w - oracle|² over all weights at
every stage; the scores are of sequences it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..models import ICLTransformer
from ..tasks import Batch, Noise, Regression
from .evaluate import Score, oracle, score

WITHOUT: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "xx": ("xx",),
    "xy": ("xy",),
    "yx": ("yx",),
    "yy": ("yy",),
    "xy and yy": ("xy", "yy"),
}
PLACES: dict[str, Any] = {"xx": (slice(-1), slice(-1)), "xy": (slice(-1), -1), "yx": (-1, slice(-1)), "yy": (-1, -1)}
FADE = {0.5: 20, 0.0: 60}  # how much of the block is left, stage by stage, and the iterations of L-BFGS there
BOUND, FAR = 1e3, 1e6  # of ½|w - oracle|² of one sequence: the most it counts, and where it only counts
SEEN = {"full": 4096, "diag": 2048, "gd++": 2048}  # sequences to refit on: FULL has many more weights


@dataclass(frozen=True)
class Ablation:
    """A score without the omegas named, as trained and refitted; `refit` is None where nothing is left to learn."""

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
    """The model without each omega that its kind has; `report` hears the part done, 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    problem = Regression(noise, model.config.d, model.config.n)
    seen, fresh = (problem.sample(count, generator) for count in (SEEN[model.config.kind], sequences))
    kept = {name: gone for name, gone in WITHOUT.items() if model.config.kind != "gd++" or not {"xy", "yy"} & {*gone}}
    found = []
    for done, (name, gone) in enumerate(kept.items()):
        plain = _score(model, gone, fresh)
        refit = None if "yx" in gone else _score(refitted(model, gone, seen), gone, fresh)  # without yx the answer is 0
        found.append(Ablation(name, plain, refit))
        if report is not None:
            report((done + 1) / len(kept))
    return found


def mask(size: int, gone: tuple[str, ...], left: float = 0.0) -> Tensor:
    """[E,E]: `left` on the blocks that go, 1 elsewhere."""
    found = torch.ones(size, size, dtype=torch.float64)
    for name in gone:
        found[PLACES[name]] = left
    return found


def masked_weights(model: ICLTransformer, s: Tensor, factor: Tensor) -> Tensor:
    """w [B,d] from s [B,E,E] where the map of every layer is G * factor [E,E]."""
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
    """(P, Q) of each layer, [K,E,E]; with diagonal matrices (omega [E,E],): G is then S times a number a block."""
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
    """A copy that has learned to do without, or the model itself where that is better on the sequences seen."""
    s, best = seen.gram.s, oracle(seen)
    copy = deepcopy(model)
    for left, iterations in FADE.items():
        _lower(copy, s, best, mask(model.config.d + 1, gone, left), iterations)
    with torch.no_grad():
        losses = [float(loss(one, s, best, mask(model.config.d + 1, gone))) for one in (model, copy)]
    return copy if losses[1] < losses[0] else model


def loss(model: ICLTransformer, s: Tensor, best: Tensor, factor: Tensor) -> Tensor:
    """The mean of ½|w - best|², bent so that no sequence counts more than BOUND: a few may explode on the way."""
    gap = (masked_weights(model, s, factor) - best).square().sum(-1) / 2  # [B]
    near = gap < FAR  # not so where it is NaN
    if not bool(near.all()):  # the gradient of the others is no use, and would spoil the rest
        gap = (masked_weights(model, s[near], factor) - best[near]).square().sum(-1) / 2
    return ((gap / (1 + gap / BOUND)).sum() + BOUND * (~near).sum()) / len(s)


def _lower(model: ICLTransformer, s: Tensor, best: Tensor, factor: Tensor, iterations: int) -> None:
    """L-BFGS on all weights of the model."""
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
