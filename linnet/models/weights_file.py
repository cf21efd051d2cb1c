"""Compare a configuration with the header of its weights file before a model is built.

    check_sizes(config, path)       ValueError unless the file has exactly the tensors of `config`, in their shapes

A damaged configuration of a few bytes may describe a model larger than memory. The shapes in a safetensors header add
up to the size of the file (the library checks it), so a configuration that agrees with them fits as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch.overrides import TorchFunctionMode

from ..limits import LIMITS
from .config import ModelConfig

if TYPE_CHECKING:
    from .base import Model


class Shape(NamedTuple):
    """The shape of a tensor, as the header gives it."""

    shape: tuple[int, ...]


def read_shapes(path: Path) -> dict[str, Shape]:
    """Return name -> shape of a safetensors file without reading a tensor."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: a folder with a configuration and {path.name}")
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            if len(names) > LIMITS.TENSORS:
                raise ValueError(f"{path} has {len(names):,} tensors; accepted: {LIMITS.TENSORS:,} at most")
            return {name: Shape(tuple(file.get_slice(name).get_shape())) for name in names}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); copy it again or use a backup") from None


def check_sizes(config: ModelConfig, path: Path) -> None:
    """Raise ValueError unless the file has exactly the tensors of a model of this configuration."""
    shapes = read_shapes(path)
    check_layers(config, len(shapes), str(path))
    check_weights(shapes, blueprint(config, str(path.parent)).state_dict(), str(path))


def check_layers(config: ModelConfig, tensors: int, where: str) -> None:
    """Raise ValueError for more layers than tensors, before any layer is built: each layer has at least one."""
    for name in ("n_layers", "n_encoder_layers"):
        if (layers := getattr(config, name)) > tensors:
            raise ValueError(
                f"{where} has {tensors} tensors where {name} is {layers}; it belongs to another configuration, or the "
                "configuration is damaged: restore both"
            )


def blueprint(config: ModelConfig, where: str) -> Model:
    """Build the model on the meta device; raise ValueError, whatever the layers raise, if that is impossible."""
    from . import build  # not at the top: it imports this file

    try:
        with torch.device("meta"), _WithoutDraws():
            return build(config)
    except (ValueError, TypeError, RuntimeError, AttributeError, ArithmeticError, LookupError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{where}: no model can be built from its configuration ({reason}); restore it") from None


class _WithoutDraws(TorchFunctionMode):
    """Leave out random initialisation: on the meta device it draws nothing, but imports torch's compiler, a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def check_weights(given: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise ValueError with the first difference in names, dtypes or shapes."""
    for name in (*wanted, *given):
        if name not in given:
            raise ValueError(f"{where} lacks {name!r} {list(wanted[name].shape)}; it belongs to another configuration")
        if name not in wanted:
            raise ValueError(f"{where} has {name!r}, unknown to this model; it belongs to another configuration")
        got, want = (getattr(side[name], "dtype", None) for side in (given, wanted))
        if got is not None and want is not None and not _fits(got, want):
            raise ValueError(f"{where}: {name!r} is {got} where the model has {want}; restore the file")
        if given[name].shape != wanted[name].shape:
            has, says = list(given[name].shape), list(wanted[name].shape)
            raise ValueError(f"{where}: {name!r} has shape {has} where the configuration says {says}; restore the file")


def _fits(given: torch.dtype, wanted: torch.dtype) -> bool:
    """Return whether the dtype can be loaded: any floating point of 16 bits or more for weights, else the same."""
    return given == wanted or (given.is_floating_point and wanted.is_floating_point and given.itemsize > 1)
