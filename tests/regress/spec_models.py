"""DIAG models with the omegas that the spec lists, for tests that need a trained model and no training."""

from __future__ import annotations

import torch

from linnet.regress.model import ICLConfig, ICLTransformer

# uniform noise to 5, three layers: (xx, xy, yx, yy); the last layer's x row does nothing
U5 = [(-0.01349, -0.00037, -0.01555, -0.00043), (-0.03191, -0.00293, -0.01163, -0.00107), (0, 0, -0.28246, 0.00326)]


def diag_u5(gain: float = 1.0) -> ICLTransformer:
    """The three-layer model; `gain` times larger omegas make one that diverges."""
    omega = gain * torch.tensor(U5, dtype=torch.float64).view(-1, 2, 2)
    model = ICLTransformer(ICLConfig("diag", layers=len(U5), heads=2))  # two heads reach any four omegas
    left, size, right = torch.linalg.svd(omega)
    with torch.no_grad():
        model.p.copy_((left * size.sqrt().unsqueeze(-2)).mT)
        model.q.copy_(right * size.sqrt().unsqueeze(-1))
    return model.requires_grad_(False)
