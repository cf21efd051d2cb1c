"""What the native decoder refuses: a layer with an option that it does not know, rather than another answer.

    check_options(mixer, {"gate", "scale", ...})        BackendError with the name of any other attribute of the layer

An option shows as an attribute of a layer: a number, a parameter or a submodule. One that is new to a layer is refused
until its adapter names it, so that backend "auto" runs such a layer in torch; None and False mean that it is not used.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from ...errors import BackendError
from ...layers import NORMS

MODULE = frozenset(vars(nn.Module()))
NORM = frozenset({"normalized_shape", "eps", "elementwise_affine", "weight", "bias"})


def check_options(module: nn.Module, known: Collection[str]) -> None:
    """Raise BackendError if a module has an attribute, a parameter, a buffer or a submodule besides these."""
    here = vars(module)
    names = {*here, *here["_parameters"], *here["_modules"], *here["_buffers"]} - MODULE
    unknown = sorted(name for name in names.difference(known) if not _off(getattr(module, name)))
    if unknown:
        raise BackendError(
            f"the native decoder does not know the option {unknown[0]!r} of {type(module).__name__}; "
            "use backend 'torch'"
        )


def check_norm(norm: nn.Module) -> None:
    """Raise BackendError unless a norm is the plain layer norm or RMS norm."""
    if type(norm) not in NORMS.values():
        raise BackendError(f"the native decoder does not know the norm {type(norm).__name__}; use backend 'torch'")
    check_options(norm, NORM)


def _off(value: object) -> bool:
    return value is None or value is False
