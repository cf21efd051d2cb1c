"""How good a model is at each noise level beside ridge regression, and how near each layer comes to known methods.

    profile     score at fixed sigma, from 0 past the training range to twice its top: there the mean can explode on a
                few sequences, and the median and the share that diverged stand beside it
    distance    median over sequences of |w_l - v| / |v|, w_l the answer after layer l, v that of a known method:
                    gd       l steps of gradient descent from 0 with one step size h:   (1 - (1 - h z)^l) / z
                    newton   l Newton-Schulz iterations for Sigma⁻¹ from h I:           (1 - (1 - h z)^(2^l)) / z
                    ridge    the oracle: ridge with the true sigma²
                    bayes    the posterior mean with sigma unknown: no method does better
                gd and newton are filters of the eigenvalues z of Sigma; h is the one that comes nearest, per layer

Vladymyrov et al. 2024 (arXiv:2402.14180), figures 2, 5 and 7. L layers, B sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..models import ICLTransformer
from ..tasks import Noise, Regression
from .baselines import Spectrum, ada_rr, bayes, const_rr, spectrum, tune, tuned_rr
from .evaluate import Predict, Score, oracle, score

TUNING = 10_000  # sequences that TunedRR is tuned on
STEP_SIZES = 60  # tried for gd and newton
FLAT = 1e-12  # of the largest eigenvalue: smaller ones count as 0


def sigma_grid(noise: Noise) -> list[float]:
    """0 to one past the largest sigma in small steps, then on to twice the largest."""
    top = noise.largest
    fine = 0.5 if top >= 2 else 0.25
    near = [fine * k for k in range(round((top + 1) / fine) + 1)]
    far = [near[-1] + k for k in range(1, int(2 * top - near[-1]) + 1)]
    return near + far


def baselines(noise: Noise, d: int, n: int, seed: int) -> dict[str, Predict]:
    """What a model is shown beside: to estimate the noise takes n > d, and without any noise ridge needs n >= d."""
    if n < d and noise.mean_square == 0:
        return {}
    found: dict[str, Predict] = {"ConstRR": lambda gram: const_rr(gram, noise)}
    if n > d:
        batch = Regression(noise, d, n).sample(TUNING, torch.Generator().manual_seed(seed))
        c, cap = tune(batch.gram, batch.weights, noise)
        found |= {"AdaRR": ada_rr, "TunedRR": lambda gram: tuned_rr(gram, c, cap)}
    return found | {"Bayes": lambda gram: bayes(gram, noise)}


class Profiles:
    """Scores of a model and its baselines, noise level by noise level."""

    def __init__(self, model: ICLTransformer, noise: Noise, sequences: int, seed: int) -> None:
        self.model, self.noise, self.sequences, self.seed = model, noise, sequences, seed
        self.predictors = baselines(noise, model.config.d, model.config.n, seed)

    def at(self, sigma: float) -> dict[str, Score]:
        """Scores by name, all on the same sequences; "after 1", "after 2", .. are the layers' answers."""
        generator = torch.Generator().manual_seed(self.seed)
        problem = Regression(Noise("fixed", (sigma,)), self.model.config.d, self.model.config.n)
        batch = problem.sample(self.sequences, generator)
        with torch.no_grad():
            answers = self.model.weights(batch.gram.s, layerwise=True)  # [L+1,B,d]
        found = {"model": score(answers[-1], batch)}
        found |= {name: score(predict(batch.gram), batch) for name, predict in self.predictors.items()}
        return found | {f"after {number}": score(w, batch) for number, w in enumerate(answers[1:], 1)}


def distances(model: ICLTransformer, noise: Noise, sequences: int, seed: int) -> list[dict[str, float]]:
    """Per layer the distance to each method, and the step sizes that bring gd and newton nearest."""
    batch = Regression(noise, model.config.d, model.config.n).sample(sequences, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        answers = model.weights(batch.gram.s, layerwise=True)[1:]  # [L,B,d]
    best, one_level = oracle(batch), len(noise.grid()[0]) == 1
    known = {"ridge": best, "bayes": best if one_level else bayes(batch.gram, noise)}  # a sigma that is known: the same
    basis = spectrum(batch.gram)
    return [_distances(w, number, basis, known) for number, w in enumerate(answers, 1)]


def _distances(w: Tensor, number: int, basis: Spectrum, known: dict[str, Tensor]) -> dict[str, float]:
    sizes = step_sizes(basis)
    found: dict[str, float] = {}
    for name, power in (("gd", number), ("newton", 2**number)):
        tried = [relative(w, filtered(basis, size, power)) for size in sizes]
        best = min(range(len(tried)), key=tried.__getitem__)
        found |= {name: tried[best], f"{name} step": sizes[best]}
    return found | {name: relative(w, other) for name, other in known.items()}


def step_sizes(basis: Spectrum) -> list[float]:
    """Evenly spaced in the logarithm, up to what is stable (2 / largest eigenvalue) on half of the sequences."""
    limit = 2 / float(basis.values[..., -1].median())
    return (limit * torch.logspace(-3, 0, STEP_SIZES, dtype=torch.float64)).tolist()


def filtered(basis: Spectrum, size: float, power: int) -> Tensor:
    """(1 - (1 - size z)^power) / z of Sigma's eigenvalues z, applied to alpha: [B,d]."""
    z = basis.values
    flat = z <= FLAT * z[..., -1:]
    gain = (1 - (1 - size * z) ** power) / z.masked_fill(flat, 1.0)
    return basis.back(gain.masked_fill(flat, 0.0) * basis.a)  # alpha has nothing where Sigma has nothing


def relative(w: Tensor, other: Tensor) -> float:
    """The median of |w - other| / |other|."""
    return float(((w - other).norm(dim=-1) / other.norm(dim=-1)).nanmedian())
