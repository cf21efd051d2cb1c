"""Save and load the state of a regressor: n, mean and scatter in one safetensors file of 1.4 kB at d = 10.

It holds sums, never an example. Format "linnet-icl-state", version 2: tensors n [], mean [E], scatter [E,E], all
float64, and in the header the regressor's settings as JSON and a crc32 of everything; version 1 has no crc32.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import StateError, brief, unknown
from ..json_file import parse_json
from ..models.tensor_file import VERSIONS, note_if_plain, read_tensors, unsealed, write_sealed
from .moments import Moments
from .shipped import NAMES

FORMAT = "linnet-icl-state"


def save_moments(path: str | os.PathLike[str], moments: Moments, settings: dict[str, Any]) -> None:
    """Write the sums atomically."""
    header = {"format": FORMAT, "settings": json.dumps(settings, sort_keys=True)}
    arrays = {name: np.array(value, dtype=np.float64, order="C") for name, value in moments._asdict().items()}
    write_sealed(path, {name: torch.from_numpy(value) for name, value in arrays.items()}, header)


def load_moments(path: str | os.PathLike[str]) -> tuple[Moments, dict[str, Any]]:
    """Return (sums, settings) of a file that `save_moments` wrote; raise StateError for any other file."""
    if not Path(path).is_file():
        raise StateError(f"{path} is not a file; accepted: a state that InContextRegressor.save wrote")
    header, tensors = read_tensors(path, StateError)
    kind, version = header.get("format", "unknown"), header.get("version")
    if kind != FORMAT or version not in VERSIONS:
        raise StateError(
            f"{path} has format {brief(kind)}, version {brief(version)}; accepted: {FORMAT!r}, version "
            f"{' or '.join(VERSIONS)}, which InContextRegressor.save writes"
        )
    tensors = unsealed(path, header, tensors, StateError)
    if any(value.dtype != torch.float64 for value in tensors.values()):
        types = ", ".join(f"{name} {value.dtype}" for name, value in sorted(tensors.items()))
        raise StateError(f"{path} holds {types}; accepted: float64 alone; save it again")
    arrays = {name: value.numpy() for name, value in tensors.items()}
    shapes = {name: value.shape for name, value in arrays.items()}
    width = shapes.get("mean", (0,))[0]
    if width < 2 or shapes != {"n": (), "mean": (width,), "scatter": (width, width)}:
        raise StateError(f"{path} holds {shapes}; accepted: n, mean [d+1] and scatter [d+1,d+1]: copy it again")
    if not all(np.isfinite(value).all() for value in arrays.values()) or arrays["n"] < 0:
        raise StateError(f"{path} holds NaN, infinity or a negative count; save it again from examples that are finite")
    settings = _settings(path, header)
    note_if_plain(path, header)
    return Moments(float(arrays["n"]), arrays["mean"], arrays["scatter"]), settings


def _settings(path: str | os.PathLike[str], header: Mapping[str, str]) -> dict[str, Any]:
    try:
        settings = parse_json(header["settings"], "the header's settings", "copy it again")
        model, factor = settings["model"], float(settings["forget_factor"])
        if model is not None and model not in NAMES:
            raise unknown("pretrained model", model, NAMES)
        if not 0 < factor <= 1:
            raise ValueError(f"forget_factor {factor}")
        return {"model": model, "forget_factor": factor}
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"{path} has damaged settings ({error}); copy it again") from None
