"""The fast recipe of FULL: train every entry of P and Q with Adam, from small multiples of the identity plus noise.

    start     P = -a I + noise, Q = a I + noise, the a with the best initial loss; several draws
    first     steps of Adam towards the posterior mean (engine.py) with gradient clipping; the best draw continues
    second    the learning rate falls; every fourth block of sequences is drawn wider, and losses are tempered, so that
              the polynomial (degree 3^layers) does not explode on the one sequence in a hundred thousand

Without noise the loss falls to 1e-12 and is dominated by rare sequences: the start is then the best GD++ of this depth
plus noise on every entry, and Levenberg-Marquardt on all entries continues where the 32 bits of Adam's sequences end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from ...regress.model import ICLTransformer
from . import grow, recipes
from .engine import Adam, Augmented, Pool, pool
from .newton import Minimum, each_loss, mean_loss

BATCH, BETA2, CLIP = 2048, 0.98, 1.0
RATE, WARM_UP = 3e-3, 50
SHALLOW, SHALLOW_RATE = 2, 1e-2  # such shallow models rarely explode: no wider blocks, larger steps
SCALES = (0.14, 0.1, 0.07, 0.05, 0.035)  # of the identity at n = 20
SPREAD = 0.01  # of the noise on every entry
DRAWS = 4  # starts: about half of them reach the better of two kinds of minima
SLICES = 10  # of the second part: the temper follows the loss
TEMPER = 30.0  # times the loss
WIDER = Augmented(every=4)
REPAIRS = 3  # extra rounds of the second part, while a sequence in MANY still explodes
EXPLODED = 2.0  # times the loss without the worst thousandth
SPREADS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # of the noise on a start, times the largest entry of a matrix
BEARABLE = 1e-3  # limit on the loss, times d; or twice the loss of the start without noise
EXACT_FROM, EXACT_ROUNDS = 6, 2  # layers from which 32 bits are too few


def steps(layers: int) -> tuple[int, int]:
    """Return the steps of the first and of the second part."""
    return 1000 + 250 * layers, 600 + 150 * layers


def train(cell: recipes.Cell, report: recipes.Report) -> recipes.Trained:
    if cell.problem.noise.largest == 0 and cell.layers > 1:
        return _without_noise(cell, report)
    first, _ = steps(cell.layers)
    many = pool(cell.problem, grow.MANY, grow.MANY_SEED)
    rates = _schedule(cell)
    tried = []
    for draw in range(DRAWS):
        tried.append(_first_part(cell, draw, rates[:first]))
        report((draw + 1) / (DRAWS + 1))
    loss, adam = min(tried, key=lambda pair: pair[0])
    if cell.layers > SHALLOW:
        loss = _temper(adam, rates[first:], loss)
    else:
        adam.run(rates[first:], temper=grow.LOST * cell.d, clip=CLIP)
    best = Minimum(adam.p.clone(), adam.q.clone(), mean_loss(many, adam.p, adam.q))
    repairs = 0
    while repairs < REPAIRS and _explodes(many, best):
        repairs += 1
        augmented = replace(WIDER, every=2, x=WIDER.x + 0.1 * repairs, w=WIDER.w + 0.2 * repairs)
        adam.run(_rates(400, RATE / 3), augmented=augmented, temper=TEMPER * loss, clip=CLIP)
        new = Minimum(adam.p.clone(), adam.q.clone(), mean_loss(many, adam.p, adam.q))
        best = new if new.loss < best.loss else best
    info = {"steps": adam.first // BATCH, "repairs": repairs, "train_loss": best.loss}
    return recipes.finish(cell, best.p, best.q, info)


def _temper(adam: Adam, rates: Tensor, loss: float) -> float:
    """Take steps with wider blocks and tempered losses, starting from this loss; return the final loss."""
    for part in rates.chunk(SLICES):
        loss = min(loss, _last(adam.run(part, augmented=WIDER, temper=TEMPER * loss, clip=CLIP)))
    return loss


def _first_part(cell: recipes.Cell, draw: int, rates: Tensor) -> tuple[float, Adam]:
    """Return the loss of one draw after the first part, and its optimiser."""
    few, more = (
        pool(cell.problem, count, seed) for count, seed in ((grow.FEW, grow.FEW_SEED), (grow.MORE, grow.MORE_SEED))
    )
    starts = [_start(cell, scale, draw) for scale in SCALES]
    p, q = min(starts, key=lambda pair: mean_loss(few, pair[0], pair[1], limit=30.0))
    adam = Adam(cell.problem, p, q, batch=BATCH, seed=cell.stream(f"train {draw}"), beta2=BETA2)
    adam.run(rates, clip=CLIP)
    return mean_loss(more, p, q, grow.LOST * cell.d), adam


def _start(cell: recipes.Cell, scale: float, draw: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(cell.stream(f"start {draw}"))
    shape = cell.config.shapes[0]
    one = torch.zeros(shape, dtype=torch.float64)
    one[:, 0] = torch.eye(shape[-1], dtype=torch.float64) * (scale * math.sqrt(20 / cell.n))
    noise = [SPREAD * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "pq"]
    return noise[0] - one, noise[1] + one


def _schedule(cell: recipes.Cell) -> Tensor:
    return _rates(sum(steps(cell.layers)), RATE if cell.layers > SHALLOW else SHALLOW_RATE)


def _rates(count: int, rate: float = RATE) -> Tensor:
    """Return learning rates: warm-up, `rate` for the first third, then half a cosine to zero."""
    t = torch.arange(count, dtype=torch.float64)
    share = ((t - count / 3) / (count - count / 3)).clamp(min=0)
    return rate * ((t + 1) / WARM_UP).clamp(max=1) * 0.5 * (1 + torch.cos(math.pi * share))


def _last(losses: Tensor) -> float:
    return float(losses[-50:].nanmedian())


def _explodes(many: Pool, one: Minimum) -> bool:
    each = each_loss(many, one.p, one.q).sort().values
    return not float(each.mean()) < EXPLODED * float(each[: -len(each) // 1000].mean())


@lru_cache(maxsize=16)
def _filter(cell: recipes.Cell) -> ICLTransformer:
    """Return the best GD++ of the cell's problem and depth, the start of FULL without noise."""
    previous = _filter(replace(cell, layers=cell.layers - 1)) if cell.layers > 1 else None
    return grow.train(cell, previous, lambda share: None).model


def _without_noise(cell: recipes.Cell, report: recipes.Report) -> recipes.Trained:
    many = pool(cell.problem, grow.MANY, grow.MANY_SEED)
    most = grow.LOST * cell.d
    base = [matrix.detach().contiguous() for matrix in _filter(replace(cell, kind="gd++", heads=1)).matrices()]
    report(0.4)
    spread, p, q = _disturbed(cell, base)
    adam = Adam(cell.problem, p, q, batch=BATCH, seed=cell.stream("train 0"), beta2=BETA2)
    count = sum(steps(cell.layers))
    if cell.layers <= SHALLOW:
        adam.run(_rates(count, 0.1 * spread), temper=most, clip=CLIP)
    else:
        _temper(adam, _rates(count, 0.1 * spread), 1.0)
    report(0.6)
    one = Minimum(p, q, mean_loss(many, p, q, most))
    if cell.layers >= EXACT_FROM:
        one = _exactly(cell, many, one)
    info = {"start": "gd++", "spread": spread, "steps": count, "train_loss": one.loss}
    return recipes.finish(cell, one.p, one.q, info)


def _exactly(cell: recipes.Cell, many: Pool, one: Minimum) -> Minimum:
    """Run Levenberg-Marquardt on all entries; keep the result if it helps on held-out sequences."""
    other = pool(cell.problem, grow.MANY, grow.CHECK_SEED)
    polished = grow.polish(many, one, cell.stream("polish"), None, rounds=EXACT_ROUNDS)
    return polished if mean_loss(other, polished.p, polished.q) < mean_loss(other, one.p, one.q) else one


def _disturbed(cell: recipes.Cell, base: list[Tensor]) -> tuple[float, Tensor, Tensor]:
    """Return the amount of noise that the start tolerates without exploding, and P and Q with that noise."""
    few = pool(cell.problem, grow.MORE, grow.MORE_SEED)
    shape = cell.config.shapes[0]
    bearable = max(BEARABLE * cell.d, 2 * mean_loss(few, base[0], base[1]))
    for spread in SPREADS:
        generator = torch.Generator().manual_seed(cell.stream("start 0"))
        start = []
        for matrix in base:
            noise = torch.randn(shape, generator=generator, dtype=torch.float64)
            noise *= spread * matrix.abs().amax(dim=(-1, -2), keepdim=True)
            noise[:, :1] += matrix
            start.append(noise)
        if mean_loss(few, start[0], start[1]) < bearable:
            break
    return spread, start[0], start[1]
