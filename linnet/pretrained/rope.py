"""Rotary positions in a config.json: rope_theta and rope_scaling, or rope_parameters as newer versions write them.

{"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, ...}}
{"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, ...}}
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..errors import is_number
from ..layers.rope_scaling import WINDOW
from ..models.config import ModelConfig
from .fields import Fields

IGNORE = ("rope_theta", "type", "finetuned")  # in rope_scaling: read elsewhere, or a note
FRACTION = "partial_rotary_factor"
ROTARY = ("rope_theta", "rope_scaling", "rope_parameters", FRACTION)  # all fields of rotary positions


def read_rotary(
    fields: Fields, longest: int, *, partial: float | None = None, notes: Collection[str] = ()
) -> dict[str, Any]:
    """Return rotary_base, rotary_scaling if frequencies are scaled, and rotary_fraction if the model may have one.

    longest: positions trained on. partial: the fraction of a head that turns, unless the file says another. notes:
    names in rope_scaling or rope_parameters that change nothing.
    """
    rotary: dict[str, Any] = {"rotary_base": fields.number("rope_theta", 10_000.0)}
    partial = partial if partial is None else fields.number(FRACTION, partial)
    rotary |= {} if partial is None else {"rotary_fraction": partial}
    window = fields.raw(WINDOW)
    if (old := fields.raw("rope_scaling")) not in (None, new := fields.raw("rope_parameters")) and new is not None:
        raise fields.error("rope_scaling", old, "null next to rope_parameters, which replaced it")
    for name in ("rope_scaling", "rope_parameters"):
        rope = fields.raw(name)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise fields.error(name, rope, "null, or an object with a rope_type")
        base = rope.get("rope_theta", rotary["rotary_base"])
        if not is_number(base) or base <= 0:
            raise fields.error("rope_theta", base, "a number above 0")
        rotary["rotary_base"] = float(base)
        scaling = _scaling({key: value for key, value in rope.items() if key not in notes}, longest, window)
        if partial is not None:
            usual = 1.0 if rope.get(FRACTION) == 1 else partial
            rotary["rotary_fraction"] = _fraction(fields, name, scaling, usual)
        if scaling["rope_type"] != "default":
            rotary["rotary_scaling"] = scaling
        elif FRACTION in scaling:
            raise fields.error(f"{name}[{FRACTION!r}]", scaling[FRACTION], "1; this is another architecture")
    return rotary


def _fraction(fields: Fields, name: str, scaling: dict[str, Any], usual: float) -> float:
    fraction = scaling.pop(FRACTION, usual)
    if not is_number(fraction) or not 0 < fraction <= 1:
        raise fields.error(f"{name}[{FRACTION!r}]", fraction, "a number above 0, up to 1")
    return float(fraction)


def write_rotary(config: ModelConfig) -> dict[str, Any]:
    """Return rope_parameters."""
    scaling = dict(config.rotary_scaling or {"rope_type": "default"})
    scaling |= {} if config.rotary_fraction is None else {FRACTION: config.rotary_fraction}
    return {"rope_parameters": {"rope_theta": config.rotary_base, **scaling}}


def _scaling(rope: dict[str, Any], longest: int, window: Any) -> dict[str, Any]:
    """Return the object for ModelConfig, with missing or null fields filled in as transformers does."""
    scaling = {name: value for name, value in rope.items() if name not in IGNORE and value is not None}
    scaling["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    if scaling.get(FRACTION) == 1:
        del scaling[FRACTION]
    if scaling["rope_type"] in ("llama3", "yarn"):
        scaling[WINDOW] = scaling.get(WINDOW, longest) if window is None else window
        trained = scaling[WINDOW]
        if "factor" not in scaling and isinstance(trained, int) and trained > 0:
            scaling["factor"] = longest / trained
    return scaling
