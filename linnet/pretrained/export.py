"""Write a LanguageModel as the folder of a published architecture, which transformers loads with equal logits.

    export_pretrained(model, folder)                          the architecture whose computation is that of the model
    export_pretrained(model, folder, model_type="mamba2")     or the one named, or a refusal by the name of the field

A configuration is written by the architecture's table, read back by the same table, and both models are compared layer
by layer before a weight is touched. So whatever the table cannot express shows as a difference, and is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..atomic import new_folder
from ..errors import brief, unknown
from ..models.config import ModelConfig
from ..models.language import LanguageModel
from ..models.tensor_file import write_tensors
from ..models.weights_file import blueprint
from .architecture import Architecture
from .folder import CONFIG, WEIGHTS
from .huggingface import ARCHITECTURES

PLAIN = (bool, int, float, str, tuple, type(None))
Layers = dict[tuple[str, str], Any]  # (module, attribute) -> value


def export_pretrained(
    model: LanguageModel, folder: str | os.PathLike[str], model_type: str | None = None, **more: Any
) -> str:
    """Write config.json and model.safetensors to a new folder and return the model_type; `more`: fields to add."""
    folder = Path(folder)
    architecture, config, values = published(model, model_type)
    tensors = _tensors(model, architecture, config)
    with new_folder(folder) as new:
        (new / CONFIG).write_text(json.dumps(values | more, indent=2) + "\n")
        write_tensors(new / WEIGHTS, tensors, {"format": "pt"})
    return architecture.name


def published(model: LanguageModel, model_type: str | None = None) -> tuple[Architecture, ModelConfig, dict[str, Any]]:
    """Return the architecture, the configuration as it reads it, and its config.json; ValueError if none fits."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a {type(model).__name__} has no published form; accepted: a LanguageModel")
    if model_type is not None and model_type not in ARCHITECTURES:
        raise unknown("model_type", model_type, ARCHITECTURES)
    tried = [ARCHITECTURES[model_type]] if model_type else list(ARCHITECTURES.values())
    problems = []
    for architecture in tried:
        try:
            return architecture, *_written(architecture, model.config)
        except ValueError as error:
            problems.append(str(error))
    if model_type:
        raise ValueError(problems[0])
    near = [problem for problem in problems if not problem.startswith("mixer is ")]
    reason = near[0] if near else f"mixer is {brief(model.config.mixer)}"
    raise ValueError(
        f"no published architecture computes what this model does ({reason}); "
        f"accepted: models of {', '.join(ARCHITECTURES)}"
    )


def _written(architecture: Architecture, config: ModelConfig) -> tuple[ModelConfig, dict[str, Any]]:
    """Return the configuration after a round trip through config.json, and the latter."""
    values = {"architectures": [architecture.model_class], "model_type": architecture.name, "dtype": "float32"}
    values |= architecture.write(config)
    again = architecture.config(CONFIG, values)
    problem = _difference(config, again)
    if problem:
        raise ValueError(f"{problem}; a {architecture.name!r} model cannot express it")
    return again, values


def _tensors(model: LanguageModel, architecture: Architecture, config: ModelConfig) -> dict[str, Tensor]:
    weights = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for part in architecture.parts(config):
        tensors |= {name: value.cpu() for name, value in part.split(weights.pop(part.ours)).items()}
    assert not weights, f"{architecture.name} has no place for {', '.join(weights)}"
    return tensors


def _difference(ours: ModelConfig, theirs: ModelConfig) -> str:
    """Return the first field of a configuration that makes another model of it, and its value; "" if none does."""
    want, found = _layers(ours), _layers(theirs)
    if want == found:
        return ""
    for name in (field.name for field in fields(ModelConfig) if field.name != "mixer_options"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other and _changes(ours, name, other, want):
            return f"{name} is {brief(mine)}, where it would become {brief(other)}"
    (module, name) = next(key for key in (*want, *found) if want.get(key) != found.get(key))
    mine, other = brief(want.get((module, name))), brief(found.get((module, name)))
    return f"mixer_options: {name} of {module} is {mine}, where it would become {other}"


def _changes(config: ModelConfig, name: str, value: Any, want: Layers) -> bool:
    try:
        return _layers(config.replace(**{name: value})) != want
    except ValueError:  # it does not fit the other fields
        return True


def _layers(config: ModelConfig) -> Layers:
    """Return every number, name and shape that the layers of a model compute with."""
    found: Layers = {}
    for where, module in blueprint(config, "the model").named_modules():
        if isinstance(module, nn.Dropout):
            continue
        found[where, "class"] = type(module).__name__
        found |= {(where, name): tuple(p.shape) for name, p in module.named_parameters(recurse=False)}
        if where.startswith("backbone."):
            own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
            found |= {(where, name): value for name, value in own.items() if isinstance(value, (*PLAIN, Mapping))}
    return found
