"""The pretrained models of the package: half a kilobyte and eight, trained with `linnet icl train`.

    model = pretrained("diag")       4 numbers per layer
    model = pretrained("full")       two 11 x 11 matrices per layer

Both at d = 10 features and n = 20 examples; model.config.made says with what noise, recipe and seed.
"""

from __future__ import annotations

from importlib.resources import as_file, files

from ..errors import unknown
from ..models import ICLTransformer
from . import assets

NAMES = ("diag", "full")


def pretrained(name: str = "diag") -> ICLTransformer:
    """A shipped model, float64, without gradients."""
    if name not in NAMES:
        raise unknown("pretrained model", name, NAMES)
    with as_file(files(assets).joinpath(f"{name}.safetensors")) as path:
        return ICLTransformer.load(path).double().requires_grad_(False)
