"""The pretrained models shipped with the package, 0.5 kB and 8 kB, trained with `linnet icl train`.

    model = pretrained("diag")       4 numbers per layer
    model = pretrained("full")       two 11 x 11 matrices per layer

Both have d = 10 features and n = 20 examples; model.config.made records the noise, recipe and seed.
"""

from __future__ import annotations

from importlib.resources import as_file, files

from ..errors import unknown
from . import assets
from .model import ICLTransformer

NAMES = ("diag", "full")


def pretrained(name: str = "diag") -> ICLTransformer:
    """Return a shipped model, float64, without gradients."""
    if name not in NAMES:
        raise unknown("pretrained model", name, NAMES)
    with as_file(files(assets).joinpath(f"{name}.safetensors")) as path:
        return ICLTransformer.load(path).double().requires_grad_(False)
