"""Models and sequences for the tests of in-context regression in native code.

sequences are sums S [E,E] with a target [d], E = d + 1; models are p, q: FULL [L,K,E,E], diagonal [L,K,2]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.labs.icl.noise import Noise
from linnet.labs.icl.regression import Regression
from linnet.native import icl
from linnet.regress.model import ICLConfig, ICLTransformer

FLOAT32, FLOAT64 = 3e-5, 1e-11  # of the largest number
N = 12


def off(got: Tensor, want: Tensor) -> float:
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).abs().max() / want.abs().max())


def model(kind: str, d: int, layers: int, heads: int = 1, seed: int = 0) -> ICLTransformer:
    generator = torch.Generator().manual_seed(seed)
    made = ICLTransformer(ICLConfig(kind, layers, d, N, heads))
    scale = 0.5 / (N * (d + 1) * layers) ** 0.5
    with torch.no_grad():
        for x in (made.p, made.q):
            x.copy_(torch.randn(x.shape, generator=generator, dtype=torch.float64) * scale)
    return made


def parts(made: ICLTransformer) -> tuple[Tensor, Tensor]:
    """p and q as the kernel takes them: GD++ with its y part, which is 0."""
    p, q = made.p.detach().clone(), made.q.detach().clone()
    return p, torch.cat([q, torch.zeros_like(q)], -1) if made.config.kind == "gd++" else q


def problems(d: int, count: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    batch = Regression(Noise.parse("U1"), d, N).sample(count, torch.Generator().manual_seed(seed))
    return batch.gram.s, batch.weights


def fresh(d: int = 3, n: int = N, samples: int = 1, noise: str = "=0.5", **given: Any) -> icl.Fresh:
    result = Noise.parse(noise)
    values = torch.tensor(result.values, dtype=torch.float64)
    return icl.Fresh(d, n, samples, values, result.kind == "uniform", **{"seed": 5, "target": "weights", **given})
