"""The training engine: in native code, or in torch where that is not built.

    Regression(noise, d, n)             what the sequences are
    Pool                                sequences kept in memory, with their best predictions
    answers, jacobian                   of a pool, for parameters p, q
    Adam(...).run(...)                  steps of Adam on fresh sequences, which each backend draws differently

p, q float64: FULL [L,K,E,E], or [L,K,2] for diagonal matrices (x part, y part), GD++ with a frozen y part of q.

The training target is the posterior mean E[w | examples] in place of w (`target` "posterior"). This changes the loss by
a constant, E|a - w|² = E|a - E[w|x,y]|² + E|E[w|x,y] - w|² for every prediction a from the examples, so the gradient is
the same in expectation, without most of its noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ...native import icl as native
from ...regress.gram import Gram
from ...regress.model import answer, diagonal, layer_maps
from . import baselines
from .noise import Noise
from .regression import Batch, Regression

GRID = 16  # nodes of sigma in the posterior mean of fresh sequences
SMALLEST = 0.01  # lower bound on sigma: below it, 32 bits cannot distinguish noise from rounding


@dataclass(frozen=True)
class Augmented:
    """Draw some blocks wider than the problem, so that the polynomial stays small on rare sequences."""

    every: int = 0  # one block in this many; 0 for none
    x: float = 1.2  # factor on the inputs
    w: float = 1.4  # factor on the weights
    weight: float = 0.1  # weight of such a block in the loss


class Pool:
    """Sums s [N,E,E], targets [N,d] and the weight of each sequence [N]; packed for the kernel once."""

    def __init__(self, s: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        self.s, self.target = s, target
        self.weight = torch.ones(len(s), dtype=s.dtype) if weight is None else weight
        self.packed = native.pack(s, target, wide=True) if native.available() else None

    def __len__(self) -> int:
        return len(self.s)


@lru_cache(maxsize=6)
def pool(problem: Regression, count: int, seed: int, augmented: Augmented | None = None) -> Pool:
    """Draw `count` sequences with their best predictions: the posterior mean of w, or w itself without noise."""
    batch = problem.sample(count, torch.Generator().manual_seed(seed))
    gram, w, weight = _widen(batch, augmented, 1)
    return Pool(gram.s, best_answer(gram, w, problem.noise), weight)


def _widen(batch: Batch, augmented: Augmented | None, block: int) -> tuple[Gram, Tensor, Tensor]:
    """Return sums, w and the weight of each sequence, with every `augmented.every`-th block drawn wider."""
    if augmented is None or not augmented.every:
        return batch.gram, batch.weights, torch.ones_like(batch.sigma)
    wide = (torch.arange(len(batch.x)) // block % augmented.every == 0).to(batch.x.dtype)
    noise = batch.y - (batch.x @ batch.weights.unsqueeze(-1)).squeeze(-1)
    x, w = (
        batch.x * (1 + wide * (augmented.x - 1))[:, None, None],
        batch.weights * (1 + wide * (augmented.w - 1))[:, None],
    )
    y = (x @ w.unsqueeze(-1)).squeeze(-1) + noise
    return Gram.of(x, y), w, 1 + wide * (augmented.weight - 1)


def best_answer(gram: Gram, weights: Tensor, noise: Noise) -> Tensor:
    return weights if noise.largest == 0 else baselines.bayes(gram, noise)


def answers(pool: Pool, p: Tensor, q: Tensor) -> Tensor:
    """Return w [N,d]."""
    if pool.packed is not None:
        return native.answers(pool.packed, p, q, threads=torch.get_num_threads())
    return _answers(pool.s, p, q)


def jacobian(pool: Pool, first: int, last: int, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return w [n,d] and dw/d(p, q) [n,d,parameters] of sequences `first` to `last`; `first` starts a block."""
    if pool.packed is None:
        return _torch_jacobian(pool.s[first:last], p, q)
    lanes = pool.packed.data.shape[-1]
    assert first % lanes == 0
    data = pool.packed.data[first // lanes : -(-last // lanes)]
    w, entries = native.jacobian(
        replace(pool.packed, data=data, samples=last - first), p, q, threads=torch.get_num_threads()
    )
    if p.dim() == 4:
        return w, entries
    omega = entries.view(*entries.shape[:2], len(p), 2, 2)
    dp, dq = torch.einsum("ndlij,lkj->ndlki", omega, q), torch.einsum("ndlij,lki->ndlkj", omega, p)
    return w, torch.cat([dp.flatten(2), dq.flatten(2)], dim=-1)


class Adam:
    """Adam on fresh sequences of a stream; parameters marked in `frozen` [parameters of p, then q] do not change."""

    def __init__(self, problem: Regression, p: Tensor, q: Tensor, *, batch: int, seed: int, target: str = "posterior",
                 frozen: Tensor | None = None, beta2: float = 0.98) -> None:  # fmt: skip
        self.problem, self.p, self.q, self.batch, self.seed = problem, p, q, batch, seed
        self.target = "weights" if target == "posterior" and problem.noise.largest == 0 else target
        self.frozen, self.beta2, self.first = frozen, beta2, 0
        self.native = native.Adam(p, q, frozen, beta2) if native.available() else None
        self.torch: torch.optim.Adam | None = None

    def run(
        self, rates: Tensor, *, augmented: Augmented | None = None, temper: float = 0.0, clip: float = 0.0
    ) -> Tensor:
        """Take a step for each learning rate, in place; return losses [steps], NaN where a step was skipped."""
        augmented = augmented or Augmented()
        if not len(rates):
            return torch.full_like(rates, torch.nan)
        if self.native is None:
            losses = self._run_torch(rates, augmented, temper, clip)
        else:
            fresh, threads = self._fresh(augmented), torch.get_num_threads()
            losses, _ = self.native.train(fresh, self.p, self.q, rates, threads=threads, temper=temper, clip=clip)
        self.first += len(rates) * self.batch
        return losses

    def _fresh(self, augmented: Augmented) -> native.Fresh:
        noise, problem = self.problem.noise, self.problem
        grid, weight = noise.grid(GRID)
        grid = grid.clamp(min=SMALLEST)
        return native.Fresh(
            problem.d, problem.n, self.batch, torch.tensor(noise.values, dtype=torch.float64),
            noise.kind == "uniform", self.seed, self.first, self.target, grid, weight.log(),
            augmented.every, augmented.x, augmented.w, augmented.weight,
        )  # fmt: skip

    def _run_torch(self, rates: Tensor, augmented: Augmented, temper: float, clip: float) -> Tensor:
        """Do the same in torch, with other sequences, for machines without the native library."""
        leaves = [self.p.detach().requires_grad_(), self.q.detach().requires_grad_()]
        if self.torch is None:
            self.torch = torch.optim.Adam(leaves, betas=(0.9, self.beta2))
        self.torch.param_groups[0]["params"] = leaves  # they share memory with p and q
        losses = torch.full_like(rates, torch.nan)
        for i, rate in enumerate(rates.tolist()):
            loss = self._torch_loss(leaves, self.first + i * self.batch, augmented, temper)
            grads = torch.autograd.grad(loss, leaves)
            norm = float(torch.stack([g.norm() for g in grads]).norm())
            if not norm < 1e30:
                continue
            for leaf, grad, keep in zip(leaves, grads, self._keep(), strict=True):
                leaf.grad = grad * keep * (clip / norm if 0 < clip < norm else 1.0)
            self.torch.param_groups[0]["lr"] = rate
            self.torch.step()
            losses[i] = loss.detach()
        return losses

    def _keep(self) -> list[Tensor]:
        if self.frozen is None:
            return [torch.ones(()), torch.ones(())]
        p, q = (1 - self.frozen.to(self.p.dtype)).view(2, *self.p.shape)
        return [p, q]

    def _torch_loss(self, leaves: list[Tensor], first: int, augmented: Augmented, temper: float) -> Tensor:
        batch = self.problem.sample(self.batch, torch.Generator().manual_seed(self.seed * 1_000_003 + first))
        gram, w, weight = _widen(batch, augmented, 16)
        w_model = _answers(gram.s, leaves[0], leaves[1])
        if self.target == "query":
            each = 0.5 * ((w_model - w) * batch.query).sum(-1) ** 2
        else:
            aim = best_answer(gram, w, self.problem.noise) if self.target == "posterior" else w
            each = 0.5 * ((w_model - aim) ** 2).sum(-1)
        if temper > 0:
            each = torch.where(each > temper, temper * (1 + (each / temper).log()), each)
        each = each * weight
        return each[torch.isfinite(each)].sum() / self.batch


def _answers(s: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Return w [N,d] from sums [N,E,E], in torch."""
    if p.dim() == 3:
        p, q = diagonal(p, s.shape[-1] - 1), diagonal(q, s.shape[-1] - 1)
    return answer(layer_maps(s, p, q))


def _torch_jacobian(s: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    p, q = p.detach().requires_grad_(), q.detach().requires_grad_()
    # every sequence has its own copy of the parameters, so that one backward per coordinate serves all of them
    copies = [x.unsqueeze(0).expand(len(s), *x.shape).contiguous().requires_grad_() for x in (p, q)]
    w = torch.vmap(lambda one, a, b: _answers(one.unsqueeze(0), a, b)[0])(s, *copies)
    rows = []
    for i in range(w.shape[-1]):
        grads = torch.autograd.grad(w[:, i].sum(), copies, retain_graph=True)
        rows.append(torch.cat([x.flatten(1) for x in grads], dim=-1))
    return w.detach(), torch.stack(rows, dim=1)
