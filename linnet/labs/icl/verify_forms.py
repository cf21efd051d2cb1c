"""Checks of the forms of a linear transformer: tokens and sums, its recursion, what it can and cannot depend on.

    token form     e <- e + sum_k sum_j (e_jᵀ Q_k e) P_k e_j          Gram form     S <- (I + G) S (I + G)ᵀ
    theorem 4.1    the prediction is <w, x_t>, linear in the query, at every depth
    lemma 4.3      M, u, a, w describe every token of every layer (recursion.py)
    theorem 4.2    labels stay linear in x: they are almost orthogonal to a square

Vladymyrov et al. 2024 (arXiv:2402.14180). Each check draws from the generator it receives.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...regress.gram import Gram
from ...regress.model import KINDS, ICLConfig, ICLTransformer
from . import recursion
from .recursion import Step, Trace, apply, from_omega, trace
from .regression import Batch
from .verify_check import EXACT, Check, drawn, error, scaled, tokens

SETTINGS = [(kind, heads) for kind in KINDS for heads in (1, 3)]
SEEN = 0.01  # relative: more than this is a difference, not rounding
LENGTHS = (1_000, 10_000, 100_000)  # examples, theorem 4.2
SHARE = 3.0  # theorem 4.2: a cosine is at most this many times sqrt(d / n)


def gram(
    generator: torch.Generator, weights: Callable[[ICLTransformer, Tensor], Tensor] = ICLTransformer.weights
) -> list[Check]:
    """Check that the sums S suffice, and that they are additive."""
    answers, sums, merged, copied = [], [], [], []
    for kind, heads in SETTINGS:
        model, batch = drawn(kind, generator, layers=4, heads=heads)
        s = batch.gram.s
        answer = (weights(model, s) * batch.query).sum(-1)
        answers.append(error(answer, model(batch.x, batch.y, batch.query.unsqueeze(1)).squeeze(-1)))
        context = tokens(model, batch)[1:, :, :-1]
        grown = torch.eye(s.shape[-1], dtype=s.dtype) + model.maps(s)  # [L,B,E,E]
        sums.append(max(error(grown[0] @ s @ grown[0].mT, context[0].mT @ context[0]), _carried(grown, context)))
        halves = [Gram.of(batch.x[:, part], batch.y[:, part]) for part in (slice(0, 5), slice(5, None))]
        merged.append(error(weights(model, halves[0].merge(halves[1]).s), weights(model, s)))
        copied.append(error(model.weights(3 * s, count=3 * batch.x.shape[1]), weights(model, s)))
    return [
        Check("gram", "answers from the sums S alone are those of the tokens", max(answers), EXACT),
        Check("gram", "the sums after a layer are (I + G) S (I + G)ᵀ", max(sums), EXACT),
        Check("gram", "the sums of two parts of the examples, added, give the same w", max(merged), EXACT),
        Check("gram", "with the count given, three copies of every example change nothing", max(copied), EXACT),
        *_degree(generator),
    ]


def _carried(grown: Tensor, context: Tensor) -> float:
    """Return the error of the sums of each layer's tokens [L,B,n,E] from the previous ones by I + G [L,B,E,E]."""
    before, after = context[:-1].mT @ context[:-1], context[1:].mT @ context[1:]
    return error(grown[1:] @ before @ grown[1:].mT, after)


def _degree(generator: torch.Generator) -> list[Check]:
    """Check that w is an even polynomial of degree 3^L - 1 in the tokens' scale t: high differences in t² vanish."""
    model, batch = drawn("full", generator, layers=2, heads=2)
    scales = torch.linspace(0.5, 1.5, 6, dtype=torch.float64)  # t²
    w = model.weights(scales[:, None, None, None] * batch.gram.s)
    size = float(w.abs().max())
    fourth, fifth = (float(w.diff(n=order, dim=0).abs().max()) / size for order in (4, 5))
    statement = "two layers are of degree 3² in the tokens: differences of w in the squared scale"
    return [
        Check("gram", f"{statement} end after the fourth", fifth, EXACT),
        Check("gram", f"{statement} do not end before", fourth, 100 * EXACT, ">="),
    ]


def theorem_4_1(generator: torch.Generator) -> list[Check]:
    """Check that the prediction is linear in the query, and that the query changes no example."""
    model, batch = drawn("full", generator, layers=4, heads=3)
    queries = torch.randn(batch.x.shape[0], 2, batch.x.shape[2], generator=generator, dtype=torch.float64)
    mixed = 2 * queries[:, :1] - 3 * queries[:, 1:]
    seen = model.tokens(batch.x, batch.y, torch.cat([queries, mixed], 1))  # [L+1,B,n+3,E]
    n = batch.x.shape[1]
    asked = seen[1:, :, n:, -1]  # [L,B,3]
    linear = error(asked[..., 2], 2 * asked[..., 0] - 3 * asked[..., 1])
    other = model.tokens(batch.x, batch.y, 7 * queries)
    shuffle = torch.randperm(n, generator=generator)
    shuffled = model(batch.x[:, shuffle], batch.y[:, shuffle], queries)
    return [
        Check("theorem-4.1", "every layer answers 2 x - 3 z with 2 f(x) - 3 f(z)", linear, EXACT),
        Check("theorem-4.1", "the query changes no example", error(other[:, :, :n], seen[:, :, :n]), EXACT),
        Check("theorem-4.1", "the order of the examples does not matter", error(shuffled, -asked[-1, :, :2]), EXACT),
    ]


def described(quantities: Trace, batch: Batch) -> Tensor:
    """Return the tokens [L+1,B,n+1,E] described by M, u, a, w."""
    x = torch.cat([batch.x, batch.query.unsqueeze(1)], 1)
    y = torch.cat([batch.y, torch.zeros_like(batch.y[:, :1])], 1)
    x_l = x @ quantities.m.mT + y.unsqueeze(-1) * quantities.u.unsqueeze(-2)
    y_l = quantities.a.unsqueeze(-1) * y - apply(x.expand(*quantities.w.shape[:-1], -1, -1), quantities.w)
    return torch.cat([x_l, y_l.unsqueeze(-1)], -1)


def lemma_4_3(generator: torch.Generator, step: Step = recursion.step) -> list[Check]:
    """Check that the recursion describes every token of every layer."""
    errors = []
    for kind, heads in SETTINGS:
        model, batch = drawn(kind, generator, layers=4, heads=heads)
        errors.append(error(described(trace(model, batch.gram.s, step=step), batch), tokens(model, batch)))
    worst = {kind: max(e for (k, _), e in zip(SETTINGS, errors, strict=True) if k == kind) for kind in KINDS}
    statement = "M, u, a, w give every token after each of 4 layers, 1 and 3 heads"
    return [Check("lemma-4.3", f"{kind.upper()}: {statement}", value, EXACT) for kind, value in worst.items()]


def theorem_4_2(generator: torch.Generator) -> list[Check]:
    """Check that y^l is linear in x, so that its cosine with a square falls as 1/sqrt(n)."""
    d, draws = 10, 4
    best = {n: sum(_square(n, d, generator) for _ in range(draws)) / draws for n in LENGTHS}
    largest = max(value / math.sqrt(d / n) for n, value in best.items())
    slope = math.log(best[LENGTHS[-1]] / best[LENGTHS[0]]) / math.log(LENGTHS[-1] / LENGTHS[0])
    return [
        Check("theorem-4.2", "the best linear fit of x(1)², n = 10,000: its cosine", best[LENGTHS[1]], 0.1),
        Check("theorem-4.2", "that cosine over sqrt(d / n), the largest of n = 1,000 to 100,000", largest, SHARE),
        Check("theorem-4.2", "its exponent of n is -1/2: the distance from that", abs(slope + 0.5), 0.2),
        Check(
            "theorem-4.2",
            "labels of a 3-layer FULL model, n = 10,000: the cosine",
            _labels(LENGTHS[1], d, generator),
            0.1,
        ),
    ]


def _square(n: int, d: int, generator: torch.Generator) -> float:
    """Return the cosine of x(1)² with the nearest linear function of n examples."""
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    square = x[:, 0].square()
    fit = x @ torch.linalg.solve(x.mT @ x, x.mT @ square)
    return float(fit.norm() / square.norm())


def _labels(n: int, d: int, generator: torch.Generator) -> float:
    """Return the largest cosine of x(1)² with the labels a y - <w, x> after each layer of a model, without noise."""
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = x @ torch.randn(d, generator=generator, dtype=torch.float64)
    model = ICLTransformer(ICLConfig("full", 3, d, n, 2), generator).requires_grad_(False)
    s = Gram.of(x, y).s
    quantities = trace(scaled(model, s), s)
    labels = quantities.a.unsqueeze(-1) * y - quantities.w @ x.mT  # [L+1,n]
    return float(torch.nn.functional.cosine_similarity(labels, x[:, 0].square(), dim=-1).abs().max())


def diag(generator: torch.Generator) -> list[Check]:
    """Check DIAG layers in the paper's form, what heads add, and which weights have no effect."""
    model, batch = drawn("diag", generator, layers=3, heads=2)
    full = ICLTransformer(ICLConfig("full", 3, model.config.d, model.config.n, 2)).requires_grad_(False)
    full.load_state_dict(dict(zip("pq", model.matrices(), strict=True)))
    one = drawn("diag", generator, layers=5, heads=1)[0].omega()
    constraint = (one[:, 0, 0] * one[:, 1, 1] - one[:, 0, 1] * one[:, 1, 0]).abs().max() / one.square().max()
    wanted = torch.randn(20, 2, 2, generator=generator, dtype=torch.float64)
    reached = error(from_omega(wanted).omega().detach(), wanted)
    return [
        Check("diag", "its four updates are FULL with diagonal matrices", _layers(model, full, batch), EXACT),
        Check("diag", "one head: xx yy = xy yx", float(constraint), EXACT),
        Check("diag", "two heads reach any four numbers", reached, EXACT),
        *_dead(model.omega(), batch),
    ]


def _layers(model: ICLTransformer, full: ICLTransformer, batch: Batch) -> float:
    """Return the error of x' = x + xx Σ x + xy y α, y' = y + yx <α, x> + yy λ y against the tokens of FULL."""
    wanted = tokens(full, batch)
    worst = 0.0
    for (xx, xy, yx, yy), now, after in zip(model.omega().flatten(1), wanted[:-1], wanted[1:], strict=True):
        x, y = now[..., :-1], now[..., -1]
        s = Gram.of(x[:, :-1], y[:, :-1])
        new_x = x + xx * x @ s.sigma + xy * y.unsqueeze(-1) * s.alpha.unsqueeze(1)
        new_y = y + yx * apply(x, s.alpha) + yy * s.lam.unsqueeze(-1) * y
        worst = max(worst, error(torch.cat([new_x, new_y.unsqueeze(-1)], -1), after))
    return worst


def _dead(omega: Tensor, batch: Batch) -> list[Check]:
    """Check the weights without effect: xx and xy of the last layer, and yy of a single one."""

    def moved(omega: Tensor, row: int, column: int) -> float:
        other = omega.clone()
        other[-1, row, column] += 0.05
        before, after = (from_omega(o, batch.x.shape[2]).weights(batch.gram.s).detach() for o in (omega, other))
        return error(after, before)

    last = max(moved(omega, 0, 0), moved(omega, 0, 1))
    return [
        Check("diag", "xx and xy of the last layer change no answer", last, EXACT),
        Check("diag", "yy of a single layer changes no answer", moved(omega[:1], 1, 1), EXACT),
        Check("diag", "yy of the last of three layers does", moved(omega, 1, 1), SEEN, ">="),
        Check("diag", "yx of a single layer does", moved(omega[:1], 1, 0), SEEN, ">="),
    ]


def rotation(generator: torch.Generator) -> list[Check]:
    """Check x -> R x, R orthogonal: DIAG and GD++ predict the same, FULL does not."""
    r = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    errors = {}
    for kind in KINDS:
        model, batch = drawn(kind, generator, layers=4, heads=2)
        query = batch.query.unsqueeze(1)
        errors[kind] = error(model(batch.x @ r.mT, batch.y, query @ r.mT), model(batch.x, batch.y, query))
    return [
        Check("rotation", "DIAG: rotated examples and query, the same answer", errors["diag"], EXACT),
        Check("rotation", "GD++: rotated examples and query, the same answer", errors["gd++"], EXACT),
        Check("rotation", "FULL: another answer", errors["full"], SEEN, ">="),
    ]
