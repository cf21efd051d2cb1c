"""Models to explain: sample solutions of the spec, where two heads reach any omegas, and small random ones."""

from __future__ import annotations

import torch

from linnet.labs.icl.recursion import from_omega
from linnet.regress.model import ICLConfig, ICLTransformer

SOLUTIONS = {
    "U5": [
        (-0.01349, -0.00037, -0.01555, -0.00043),
        (-0.03191, -0.00293, -0.01163, -0.00107),
        (0, 0, -0.28246, 0.00326),
    ],
    "1,3": [
        (-0.00992, 3e-5, -0.02102, 7e-5),
        (-0.05136, -0.00116, -0.05504, -0.00124),
        (-0.086, -0.01087, -0.01134, -0.00143),
        (0, 0, -0.67294, 0.00134),
    ],
}


def solution(name: str) -> ICLTransformer:
    return from_omega(torch.tensor(SOLUTIONS[name], dtype=torch.float64).unflatten(-1, (2, 2)))


def small(
    kind: str = "diag", layers: int = 2, d: int = 3, n: int = 8, heads: int = 2, noise: str = "U2"
) -> ICLTransformer:
    """Random weights that neither vanish nor explode, with the noise that a trained model would name."""
    config = ICLConfig(kind, layers, d, n, heads, {"noise": noise, "recipe": "none"})
    model = ICLTransformer(config, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for value in (model.p, model.q):
            value.mul_(0.12 / value.std())
    return model
