"""Compare a model with ridge regression at each noise level, and each of its layers with known methods.

    profile     score at fixed sigma, from 0 to twice the top of the training range: there the mean can explode on a few
                sequences, so the median and the share that diverged accompany it
    distance    median over sequences of |w_l - v| / |v|, w_l the prediction after layer l, v that of a known method:
                    gd       l steps of gradient descent from 0 with one step size h:   (1 - (1 - h z)^l) / z
                    newton   l Newton-Schulz iterations for Sigma⁻¹ from h I:           (1 - (1 - h z)^(2^l)) / z
                    ridge    the oracle: ridge with the true sigma²
                    bayes    the posterior mean with sigma unknown: no method is better
                gd and newton are filters of the eigenvalues z of Sigma; h is the one that is nearest, per layer

Vladymyrov et al. 2024 (arXiv:2402.14180), figures 2, 5 and 7. L layers, B sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...regress.model import ICLTransformer
from .baselines import Spectrum, ada_rr, bayes, const_rr, spectrum, tune, tuned_rr
from .evaluate import Predict, Score, oracle, score
from .noise import Noise
from .regression import Regression

TUNING = 10_000  # sequences for tuning TunedRR
STEP_SIZES = 60  # tried for gd and newton
FLAT = 1e-12  # relative to the largest eigenvalue: smaller ones count as 0


def sigma_grid(noise: Noise) -> list[float]:
    """Return sigmas from 0 to one past the largest in small steps, then up to twice the largest."""
    top = noise.largest
    fine = 0.5 if top >= 2 else 0.25
    near = [fine * k for k in range(round((top + 1) / fine) + 1)]
    far = [near[-1] + k for k in range(1, int(2 * top - near[-1]) + 1)]
    return near + far


def baselines(noise: Noise, d: int, n: int, seed: int) -> dict[str, Predict]:
    """Return the methods to compare with: estimating the noise takes n > d, and ridge without noise n >= d."""
    if n < d and noise.mean_square == 0:
        return {}
    predictors: dict[str, Predict] = {"ConstRR": lambda gram: const_rr(gram, noise)}
    if n > d:
        batch = Regression(noise, d, n).sample(TUNING, torch.Generator().manual_seed(seed))
        c, cap = tune(batch.gram, batch.weights, noise)
        predictors |= {"AdaRR": ada_rr, "TunedRR": lambda gram: tuned_rr(gram, c, cap)}
    return predictors | {"Bayes": lambda gram: bayes(gram, noise)}


class Profiles:
    """Scores of a model and its baselines, noise level by noise level."""

    def __init__(self, model: ICLTransformer, noise: Noise, sequences: int, seed: int) -> None:
        self.model, self.noise, self.sequences, self.seed = model, noise, sequences, seed
        self.predictors = baselines(noise, model.config.d, model.config.n, seed)

    def at(self, sigma: float) -> dict[str, Score]:
        """Return scores by name, all on the same sequences; "after 1", "after 2", .. are the layers' predictions."""
        generator = torch.Generator().manual_seed(self.seed)
        problem = Regression(Noise("fixed", (sigma,)), self.model.config.d, self.model.config.n)
        batch = problem.sample(self.sequences, generator)
        with torch.no_grad():
            answers = self.model.weights(batch.gram.s, layerwise=True)  # [L+1,B,d]
        scores = {"model": score(answers[-1], batch)}
        scores |= {name: score(predict(batch.gram), batch) for name, predict in self.predictors.items()}
        return scores | {f"after {number}": score(w, batch) for number, w in enumerate(answers[1:], 1)}


def distances(model: ICLTransformer, noise: Noise, sequences: int, seed: int) -> list[dict[str, float]]:
    """Return for each layer the distance to each method, and the best step sizes of gd and newton."""
    batch = Regression(noise, model.config.d, model.config.n).sample(sequences, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        answers = model.weights(batch.gram.s, layerwise=True)[1:]  # [L,B,d]
    best, one_level = oracle(batch), len(noise.grid()[0]) == 1
    known = {"ridge": best, "bayes": best if one_level else bayes(batch.gram, noise)}  # known sigma: the same
    basis = spectrum(batch.gram)
    return [_distances(w, number, basis, known) for number, w in enumerate(answers, 1)]


def _distances(w: Tensor, number: int, basis: Spectrum, known: dict[str, Tensor]) -> dict[str, float]:
    sizes = step_sizes(basis)
    nearest: dict[str, float] = {}
    for name, power in (("gd", number), ("newton", 2**number)):
        tried = [relative(w, filtered(basis, size, power)) for size in sizes]
        best = min(range(len(tried)), key=tried.__getitem__)
        nearest |= {name: tried[best], f"{name} step": sizes[best]}
    return nearest | {name: relative(w, other) for name, other in known.items()}


def step_sizes(basis: Spectrum) -> list[float]:
    """Return log-spaced sizes up to what is stable (2 / largest eigenvalue) on half of the sequences."""
    limit = 2 / float(basis.values[..., -1].median())
    return (limit * torch.logspace(-3, 0, STEP_SIZES, dtype=torch.float64)).tolist()


def filtered(basis: Spectrum, size: float, power: int) -> Tensor:
    """Return (1 - (1 - size z)^power) / z of Sigma's eigenvalues z, applied to alpha: [B,d]."""
    z = basis.values
    flat = z <= FLAT * z[..., -1:]
    gain = (1 - (1 - size * z) ** power) / z.masked_fill(flat, 1.0)
    return basis.back(gain.masked_fill(flat, 0.0) * basis.a)  # alpha is 0 where Sigma is 0


def relative(w: Tensor, other: Tensor) -> float:
    """Return the median of |w - other| / |other|."""
    return float(((w - other).norm(dim=-1) / other.norm(dim=-1)).nanmedian())
