"""A linear transformer small enough for pencil and paper: one feature, two examples, two layers.

    tokens (x, y) = (1, 1), (2, 3), the query (1, 0)          w* = alpha / Sigma = 7 / 5, the least-squares solution

The same forward pass in three forms: the tokens themselves, the trace (M, u, a, w) of the recursion, and the sums S.
Each is computed independently, and they agree: x^l = M x + y u, y^l = a y - w x, S^l = sum of token times token, and
the prediction is w x_t = -(the y of the query).
"""

from __future__ import annotations

from typing import Any

import torch

from ...regress.gram import Gram
from ...regress.model import ICLTransformer
from .explain_layers import sums
from .recursion import from_omega, trace

X, Y, QUERY = (1.0, 2.0), (1.0, 3.0), 1.0
OMEGA = ((-0.1, -0.02, -0.1, -0.02), (-0.2, -0.05, -0.3, -0.05))  # xx, xy, yx, yy of each layer


def example_model() -> ICLTransformer:
    return from_omega(torch.tensor(OMEGA, dtype=torch.float64).unflatten(-1, (2, 2)), d=1, n=len(X))


def worked_example() -> dict[str, Any]:
    """Return every number of the example: the data, then one entry before the first layer and one after each."""
    model = example_model()
    x, y, query = (torch.tensor(value, dtype=torch.float64) for value in (X, Y, QUERY))
    gram = Gram.of(x.unsqueeze(-1), y)
    with torch.no_grad():
        tokens = model.tokens(x.view(1, -1, 1), y.view(1, -1), query.view(1, 1, 1))[:, 0]  # [L+1,n+1,2]
        maps = model.maps(gram.s)  # [L,2,2]
        quantities = trace(model, gram.s)
    s = sums(maps, gram.s)
    states = [
        {
            "tokens": tokens[i, :-1].tolist(),
            "query": tokens[i, -1].tolist(),
            "trace": {name: float(getattr(quantities, name)[i]) for name in quantities._fields},
            "sums": {"Sigma": float(s[i, 0, 0]), "alpha": float(s[i, 0, 1]), "lambda": float(s[i, 1, 1])},
            "answer": 0.0 - float(tokens[i, -1, -1]),
        }
        for i in range(len(tokens))
    ]
    layers = [
        {"omega": dict(zip(("xx", "xy", "yx", "yy"), omega, strict=True)), "map": dict(zip("Abce", g, strict=True))}
        for omega, g in zip(OMEGA, maps.flatten(1).tolist(), strict=True)
    ]
    least = float(gram.alpha / gram.sigma[..., 0])
    rest = [b - least * a for a, b in zip(X, Y, strict=True)]
    about = {"least squares": least, "residuals": rest, "rho": sum(value**2 for value in rest)}
    return {"x": list(X), "y": list(Y), "query": QUERY, **about, "states": states, "layers": layers}
