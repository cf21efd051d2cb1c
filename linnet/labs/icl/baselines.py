"""Ridge regression in every form the paper compares with, and the Bayes predictor that nothing can beat.

    w = (Sigma + s² I)⁻¹ alpha          Sigma = sum x xᵀ, alpha = sum y x, lambda = sum y², all held by a Gram

    oracle     s² = the sequence's own sigma²            ridge(gram, sigma**2)
    OLS        s² = 0
    ConstRR    s² = E[sigma²], the best fixed penalty
    AdaRR      s² = RSS_OLS / (n - d), the unbiased estimate of sigma²
    TunedRR    s² = min(c RSS_OLS / (n - d), cap)         c and cap from `tune`
    GD-AdaRR   AdaRR with both inversions replaced by gradient steps
    GCV        s² = argmin n RSS(s²) / (n - tr H(s²))²    Golub, Heath and Wahba 1979
    Bayes      the posterior mean of w under the distribution that sigma is drawn from
    one step   w = alpha / (n + d + 1 + E[sigma²]), the best that a single layer of any kind can do

Vladymyrov et al. 2024 (arXiv:2402.14180), section 4; GCV, Bayes and one step are our additions. d features; leading
axes are sequences. Everything is float64, one Cholesky or eigen-decomposition per sequence.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import whole
from ...regress.gram import Gram, ridge
from .noise import Noise

MULTIPLIERS = tuple(round(0.1 * k, 1) for k in range(1, 31))  # of the noise estimate, for `tune`
CAPS = tuple(round(0.1 * k, 1) for k in range(1, 16))  # times the largest sigma², for `tune`
GCV_PENALTIES = tuple(10 ** (k / 8) for k in range(-32, 33))  # 1e-4 to 1e4, eight to a decade
NEGLIGIBLE = 40.0  # log: sigmas whose posterior density is e^-40 of the highest are left out of the integral
QUIET = 1e-10  # lower bound on a variance, as a share of the labels' own: rounding hides smaller ones
CHUNK = 1024  # sequences per batch, [CHUNK, points, d] numbers in memory


class Spectrum(NamedTuple):
    """Sigma = V diag(values) Vᵀ with values [...,d] >= 0 increasing, vectors V [...,d,d], and a = Vᵀ alpha [...,d]."""

    values: Tensor
    vectors: Tensor
    a: Tensor

    def back(self, inside: Tensor) -> Tensor:
        """Transform a vector [...,d] from the eigenbasis back to the features."""
        return (self.vectors @ inside.unsqueeze(-1)).squeeze(-1)


def spectrum(gram: Gram) -> Spectrum:
    values, vectors = torch.linalg.eigh(gram.sigma.double())
    return Spectrum(values.clamp(min=0), vectors, (vectors.mT @ gram.alpha.double().unsqueeze(-1)).squeeze(-1))


def ols(gram: Gram) -> Tensor:
    """Return least squares, Sigma⁻¹ alpha [...,d]."""
    return ridge(gram, 0.0)


def noise_estimate(gram: Gram) -> Tensor:
    """Return RSS_OLS / (n - d) [...], an unbiased estimate of sigma², never negative."""
    _check_spare(gram)
    return _variance(gram, ols(gram))


def const_rr(gram: Gram, noise: Noise) -> Tensor:
    """Ridge with one penalty for all sequences; E[sigma²] is the best penalty and the best fixed filter of Sigma."""
    return ridge(gram, noise.mean_square)


def ada_rr(gram: Gram) -> Tensor:
    """Ridge with each sequence's noise estimate as its penalty."""
    return ridge(gram, noise_estimate(gram))


def tuned_rr(gram: Gram, c: float, cap: float) -> Tensor:
    """AdaRR with the estimate times c, at most cap; `tune` finds both."""
    return ridge(gram, (c * noise_estimate(gram)).clamp(max=cap))


def tune(gram: Gram, weights: Tensor, noise: Noise) -> tuple[float, float]:
    """Return the (c, cap) of least |w - weights|² over MULTIPLIERS and CAPS x the largest sigma²; weights [...,d]."""
    top = noise.largest**2
    if top == 0:
        return 1.0, 0.0
    basis, estimate = spectrum(gram), noise_estimate(gram)
    true = (basis.vectors.mT @ weights.double().unsqueeze(-1)).squeeze(-1)

    def error(penalty: Tensor) -> Tensor:
        return (basis.a / (basis.values + penalty.unsqueeze(-1)) - true).square().sum(-1)

    free = [(c, c * estimate, error(c * estimate)) for c in MULTIPLIERS]
    capped = [(share * top, error(torch.full_like(estimate, share * top))) for share in CAPS]
    losses = {
        (c, cap): float(torch.where(penalty < cap, below, above).mean())
        for c, penalty, below in free
        for cap, above in capped
    }
    return min(losses, key=lambda pair: losses[pair])


def gd_ada_rr(gram: Gram, steps: int, step: float | None = None) -> Tensor:
    """AdaRR without inversion: `steps` gradient steps for the noise, then as many for the ridge, both from 0.

    The step size is 2 / (smallest + largest eigenvalue) of each problem, the best constant one; or `step` for the noise
    and 1 / (1 / step + s²) for the ridge, which is stable wherever the first is.
    """
    whole("steps", steps, 1)
    if step is not None and not step > 0:
        raise ValueError(f"the step size is {step}; accepted: a number above 0, or None for the best of each sequence")
    _check_spare(gram)
    none = torch.zeros_like(gram.lam, dtype=torch.float64)
    return _descend(gram, _variance(gram, _descend(gram, none, steps, step)), steps, step)


def _descend(gram: Gram, penalty: Tensor, steps: int, step: float | None) -> Tensor:
    eye = torch.eye(gram.d, dtype=torch.float64)
    curved, alpha = gram.sigma.double() + penalty[..., None, None] * eye, gram.alpha.double().unsqueeze(-1)
    if step is None:
        values = torch.linalg.eigvalsh(curved)
        size = (2 / (values[..., 0] + values[..., -1]))[..., None, None]
    else:
        size = (1 / (1 / step + penalty))[..., None, None]
    w = torch.zeros_like(alpha)  # [...,d,1]
    for _ in range(steps):
        w = w - size * (curved @ w - alpha)
    return w.squeeze(-1)


def ridge_gcv(gram: Gram, penalties: Tensor | None = None) -> Tensor:
    """Ridge with each sequence's penalty chosen from `penalties` [K] above 0 by generalised cross-validation.

    With H = X (Sigma + p I)⁻¹ Xᵀ the residual and the trace of H follow from the sums: the examples are not needed.
    """
    choices = torch.tensor(GCV_PENALTIES, dtype=torch.float64) if penalties is None else penalties.double()
    if choices.dim() != 1 or len(choices) == 0 or not bool((choices > 0).all()):
        raise ValueError(f"the penalties are {choices.tolist()}; accepted: a list of numbers above 0")
    basis, n = spectrum(gram), gram.n.double()
    best, least = torch.zeros_like(n), torch.full_like(n, torch.inf)
    for p in choices:
        z = basis.values + p
        rss = gram.lam - (basis.a.square() * (z + p) / z.square()).sum(-1)
        score = n * rss.clamp(min=0) / (n - (basis.values / z).sum(-1)).square()
        best, least = torch.where(score < least, p, best), torch.minimum(score, least)
    return basis.back(basis.a / (basis.values + best.unsqueeze(-1)))


def one_step(gram: Gram, noise: Noise) -> Tensor:
    """Return the best single gradient step from 0: what one layer of GD++, DIAG or FULL computes."""
    return gram.alpha.double() / (gram.n + gram.d + 1 + noise.mean_square).unsqueeze(-1)


def bayes(gram: Gram, noise: Noise, points: int = 64) -> Tensor:
    """Return E[w | data] [...,d] with sigma ~ noise: ridge solutions weighted by the posterior of each sigma.

    log p(s | data) = log prior - ½ [ sum_j log(v_j + s²) + (n - d) log s² + (lambda - sum_j a_j² / (v_j + s²)) / s² ]
    with s = sigma, v the eigenvalues of Sigma and a = alpha in their basis. A finite set of sigmas is summed exactly. A
    uniform sigma is integrated in t, sigma = top t³, which spreads small sigmas out: `points` / 2 nodes over the whole
    range locate the part that matters, narrow where n - d is large, and `points` nodes integrate there.
    """
    if points < 2:
        raise ValueError(f"points is {points}; accepted: an integer of 2 or more")
    d = gram.d
    flat = Gram(gram.s.reshape(-1, d + 1, d + 1).double(), gram.n.expand(gram.lam.shape).reshape(-1).double())
    parts = zip(flat.s.split(CHUNK), flat.n.split(CHUNK), strict=True)
    return torch.cat([_posterior_mean(Gram(s, n), noise, points) for s, n in parts]).reshape(gram.alpha.shape)


def _posterior_mean(gram: Gram, noise: Noise, points: int) -> Tensor:
    """Return w [B,d] of a batch of B sequences."""
    basis = spectrum(gram)
    if noise.kind == "uniform" and noise.largest > 0:
        sigma, log_prior = _uniform_nodes(gram, basis, noise.largest, points)
    else:
        sigma, log_prior = (value.unsqueeze(0) for value in (noise.grid()[0], noise.grid()[1].log()))
    variance = _quiet(gram, sigma)  # [B,K]
    share = torch.softmax(log_prior + _log_evidence(gram, basis, variance), dim=-1)
    answers = basis.a.unsqueeze(-2) / (basis.values.unsqueeze(-2) + variance.unsqueeze(-1))  # [B,K,d]
    return basis.back((share.unsqueeze(-2) @ answers).squeeze(-2))


def _uniform_nodes(gram: Gram, basis: Spectrum, top: float, points: int) -> tuple[Tensor, Tensor]:
    """Return sigma, log weight [B,K] of a uniform prior on (0, top), where the posterior is not negligible."""
    unit = Noise("uniform", (1.0,))
    rough, _ = unit.grid(points // 2)
    density = 2 * rough.log() + _log_evidence(gram, basis, _quiet(gram, top * rough.unsqueeze(0) ** 3))  # [B,K], in t
    counts = (density > density.amax(-1, keepdim=True) - NEGLIGIBLE).long()
    edges = torch.cat([rough.new_zeros(1), rough, rough.new_ones(1)])
    low, high = edges[counts.argmax(-1)], edges[-1 - counts.flip(-1).argmax(-1)]  # one node beyond, [B]
    t, weight = unit.grid(points)
    fine = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * t
    return top * fine**3, weight.log() + 2 * fine.log()


def _log_evidence(gram: Gram, basis: Spectrum, variance: Tensor) -> Tensor:
    """Return log p(labels | inputs, sigma) up to a constant [B,K], variance = sigma² [B,K]."""
    z = basis.values.unsqueeze(-2) + variance.unsqueeze(-1)  # [B,K,d]
    explained = (basis.a.square().unsqueeze(-2) / z).sum(-1)
    rest = (gram.lam.unsqueeze(-1) - explained).clamp(min=0)
    spare = (gram.n - gram.d).unsqueeze(-1)
    return -0.5 * (z.log().sum(-1) + spare * variance.log() + rest / variance)


def _quiet(gram: Gram, sigma: Tensor) -> Tensor:
    """Return sigma² [B,K], at least the share of the labels' variance that rounding hides."""
    least = (QUIET * gram.lam / gram.n.clamp(min=1)).clamp(min=1e-300)
    return torch.maximum(sigma.square(), least.unsqueeze(-1))


def _variance(gram: Gram, w: Tensor) -> Tensor:
    """Return sum (y - <w, x>)² / (n - d) [...]."""
    fit = ((gram.sigma.double() @ w.unsqueeze(-1)).squeeze(-1) - 2 * gram.alpha) * w
    return (gram.lam + fit.sum(-1)).clamp(min=0) / (gram.n - gram.d)


def _check_spare(gram: Gram) -> None:
    if bool((gram.n <= gram.d).any()):
        raise ValueError(
            f"{gram.n.min():g} examples of {gram.d} features leave nothing to estimate the noise from; "
            f"give more than {gram.d} examples, or use ridge_gcv or bayes"
        )
