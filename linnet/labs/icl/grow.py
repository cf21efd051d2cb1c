"""The fast recipe of DIAG and GD++: insert one layer where it helps most, and minimise over all layers.

    candidates    a new layer at every place of the shallower model, in several sizes; a few steps each, few sequences
    finalists     the best of them, to convergence on more sequences
    polish        the best on a large sample, subsampled by importance: a sequence is kept with a probability
                  proportional to its loss and weighted by the inverse, so that the mean is unbiased; some sequences are
                  augmented (drawn wider, with a small weight), so that the polynomial does not explode on rare ones

The loss of these models has many local minima (the paper's GD++ with two layers on U0 is in one), which the many starts
avoid. Each start is a problem in at most 4 numbers per layer and head, which Levenberg-Marquardt (newton.py) solves in
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ...regress.model import ICLTransformer
from . import recipes
from .engine import Augmented, Pool, pool
from .newton import Minimum, each_loss, mean_loss, minimise

FEW, MORE, MANY = 512, 4096, 131_072  # sequences
KEPT = 8192  # of MANY
FINALISTS, POLISHED, ROUNDS = 5, 2, 20
ENOUGH = 5e-3  # a round that gains less than this share of the loss is the last
TEMPER = ((30.0, 1e3),)  # of candidates and finalists: times the median loss
TAILS = ((3e3, math.inf),)  # added for problems without noise, whose loss is dominated by rare sequences
FAILURES = 3  # rounds without improvement before stopping
LOST = 2.0  # times d: above this loss, a sequence counts only with the logarithm of its loss
SIZES = (-0.01, -0.04, -0.16, -0.5)  # omega_xx of a new layer at n = 20
SLANTS = (0.05, -0.05)  # its q_y / q_x
FEW_SEED, MORE_SEED, MANY_SEED, CHECK_SEED = 11, 13, 17, 19  # the same sequences for every model of a problem
WIDER = Augmented(every=8, x=1.15, w=1.3, weight=0.1)
AUGMENTED_WEIGHTS = (0.02, 0.1)  # in MANY: the second if a sequence of the check sample explodes with the first


def train(cell: recipes.Cell, previous: ICLTransformer | None, report: recipes.Report) -> recipes.Trained:
    few, more = (pool(cell.problem, count, seed, WIDER) for count, seed in ((FEW, FEW_SEED), (MORE, MORE_SEED)))
    lost = LOST * cell.d
    starts = list(_starts(cell, previous))
    tempers = TEMPER if cell.problem.noise.largest > 0 else TEMPER + TAILS
    polished = []
    for k, (early, late) in enumerate(tempers):
        candidates = []
        for i, (p, q) in enumerate(starts):
            candidates.append(minimise(few, p, q, frozen=_frozen(cell, p), iterations=8, temper=early, most=lost))
            report((k + 0.4 * i / len(starts)) / len(tempers))
        finalists = []
        for one in sorted(candidates, key=lambda one: one.loss)[:FINALISTS]:
            finalists.append(minimise(more, one.p, one.q, frozen=_frozen(cell, one.p), temper=late, most=lost))
        report((k + 0.7) / len(tempers))
        polished += _polished(cell, finalists)
    best = min(polished, key=lambda one: one.loss)
    return recipes.finish(cell, best.p, best.q, {"starts": len(starts), "train_loss": best.loss})


def _polished(cell: recipes.Cell, finalists: list[Minimum]) -> list[Minimum]:
    """Return the best on a large sample, with the least augmentation that prevents explosions on another sample."""
    noisy_and_deep = cell.problem.noise.largest > 0 and cell.layers > 2
    check = pool(cell.problem, MANY, CHECK_SEED)
    for weight in AUGMENTED_WEIGHTS if noisy_and_deep else (0.0,):
        augmented = replace(WIDER, weight=weight) if weight else None
        many = pool(cell.problem, MANY, MANY_SEED, augmented)
        ranked = [one._replace(loss=mean_loss(many, one.p, one.q, LOST * cell.d)) for one in finalists]
        ranked.sort(key=lambda one: one.loss)
        polished = [
            polish(many, one, cell.stream(f"polish {i}"), _frozen(cell, one.p))
            for i, one in enumerate(ranked[:POLISHED])
        ]
        polished = [one._replace(loss=mean_loss(check, one.p, one.q)) for one in polished]
        best = min(polished, key=lambda one: one.loss)
        if float(each_loss(check, best.p, best.q).max()) <= cell.d:
            break
    return polished


def polish(many: Pool, one: Minimum, seed: int, frozen: Tensor | None, rounds: int = ROUNDS) -> Minimum:
    """Run rounds on the sequences that matter, as long as the loss on all of them falls."""
    generator, most = torch.Generator().manual_seed(seed), LOST * many.target.shape[-1]
    failures = 0
    for _ in range(rounds):
        kept = matter(many, one.p, one.q, generator)
        end = minimise(kept, one.p, one.q, frozen=frozen, iterations=8, tolerance=1e-4, most=most)
        loss = mean_loss(many, end.p, end.q, most)
        if not loss < one.loss:
            failures += 1
            if failures == FAILURES:
                break
            continue
        gain, one = 1 - loss / one.loss, Minimum(end.p, end.q, loss)
        if gain < ENOUGH:
            break
    return one


def matter(many: Pool, p: Tensor, q: Tensor, generator: torch.Generator, kept: int = KEPT) -> Pool:
    """Sample about `kept` sequences in proportion to their loss, weighted so that means stay unbiased."""
    loss = each_loss(many, p, q).nan_to_num(nan=1e12, posinf=1e12)
    share = 0.25 / len(many) + 0.75 * loss / loss.sum().clamp(min=1e-300)
    chance = (kept * share).clamp(max=1.0)
    chosen = torch.rand(len(many), generator=generator, dtype=loss.dtype) < chance
    return Pool(many.s[chosen], many.target[chosen], 1 / chance[chosen])


def _starts(cell: recipes.Cell, previous: ICLTransformer | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the starts: the best single step, or a new layer at each place of the shallower model in several sizes."""
    if previous is None:
        eta = 1 / (cell.n + cell.d + 1 + cell.problem.noise.mean_square)
        yield _layer(cell, -eta, 1.0, 0.0 if cell.kind == "gd++" else 0.01)
        return
    if previous.config.kind != cell.kind or previous.config.layers != cell.layers - 1:
        given = f"{previous.config.kind} with {previous.config.layers} layers"
        raise ValueError(
            f"{cell.kind} with {cell.layers} layers cannot grow from {given}; give the same kind with one layer less"
        )
    p, q, _ = recipes.parameters(previous)
    for place in range(cell.layers):
        for size in SIZES:
            for slant in SLANTS if cell.kind == "diag" else (0.0,):
                for step in (0.05,) if cell.kind == "diag" else (0.0, 1.0):
                    new_p, new_q = _layer(cell, size * 20 / cell.n, step, slant)
                    yield torch.cat([p[:place], new_p, p[place:]]), torch.cat([q[:place], new_q, q[place:]])


def _layer(cell: recipes.Cell, omega: float, step: float, slant: float) -> tuple[Tensor, Tensor]:
    """Return p, q [1,K,2] with omega_xx = omega, omega_yx = step omega, q_y = slant q_x; other heads near 0."""
    root = math.sqrt(-omega)
    p, q = torch.zeros(1, cell.heads, 2, dtype=torch.float64), torch.zeros(1, cell.heads, 2, dtype=torch.float64)
    p[:, 0], q[:, 0] = torch.tensor([-root, -root * step]), torch.tensor([root, root * slant])
    p[:, 1:], q[:, 1:] = 0.1 * root, 0.01 * root
    if cell.kind == "gd++":
        q[..., 1] = 0.0
    else:
        q[:, 1:, 1] *= -1  # not parallel to the first head
    return p, q


def _frozen(cell: recipes.Cell, p: Tensor) -> Tensor | None:
    return recipes.frozen(p) if cell.kind == "gd++" else None
