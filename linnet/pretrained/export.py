"""Write a LanguageModel as the folder of a published architecture, which transformers loads with equal logits.

    export_pretrained(model, folder)                          the first architecture whose computation is the model's
    export_pretrained(model, folder, model_type="mamba2")     or the one named, or a refusal by the name of the field

A configuration is written by the architecture's table, read back by the same table, and both models are compared layer
by layer before a weight is touched. So whatever the table cannot express shows as a difference, and is refused. Weights
become float32.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..atomic import check_new, new_folder
from ..data import BPETokenizer, Tokenizer
from ..errors import brief, unknown
from ..models.base import Model
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
    model: Model,
    folder: str | os.PathLike[str],
    model_type: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> str:
    """Write config.json and model.safetensors to a new folder and return the model_type.

    `tokenizer`: its begin and end tokens go into config.json, and a byte-level BPE into tokenizer.json; the other kinds
    have no form that transformers reads.
    """
    folder = Path(folder)
    check_new(folder)
    architecture, config, values = published(model, model_type)
    if tokenizer is not None and tokenizer.vocab_size != config.vocab_size:
        got, want = tokenizer.vocab_size, config.vocab_size
        raise ValueError(f"the tokenizer has {got} tokens, the model {want}; use the one the model was trained with")
    prefix, ends = ((), ()) if tokenizer is None else (tokenizer.prefix, tokenizer.ends)
    values |= {"bos_token_id": next(iter(prefix), None), "eos_token_id": next(iter(ends), None), "pad_token_id": None}
    tensors = _tensors(model, architecture, config)
    with new_folder(folder) as new:
        (new / CONFIG).write_text(json.dumps(values, indent=2) + "\n")
        write_tensors(new / WEIGHTS, tensors, {"format": "pt"})
        if isinstance(tokenizer, BPETokenizer):
            tokenizer.save(new)
            (new / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    return architecture.name


def published(model: Model, model_type: str | None = None) -> tuple[Architecture, ModelConfig, dict[str, Any]]:
    """Return the architecture, the configuration as it reads it, and its config.json; ValueError if none fits."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a {type(model).__name__} has no published form; accepted: a LanguageModel")
    problems = []
    for architecture in _candidates(model.config, model_type):
        try:
            return architecture, *_written(architecture, model.config)
        except ValueError as error:
            reason = str(error).removeprefix(f"{CONFIG}: ")
            problems.append(f"{architecture.name!r} cannot express this model: {reason}")
    others = ", nor can any other published one" if len(problems) > 1 else ""
    raise ValueError(problems[0] + others)


def _candidates(config: ModelConfig, model_type: str | None) -> list[Architecture]:
    """Return the architectures that have the mixers of a model, or the one named; ValueError if there is none."""
    if model_type is not None and model_type not in ARCHITECTURES:
        raise unknown("model_type", model_type, ARCHITECTURES)
    asked = [ARCHITECTURES[model_type]] if model_type else list(ARCHITECTURES.values())
    fitting = [one for one in asked if set(config.mixers) <= set(one.mixers)]
    if not fitting:
        accepted = ", ".join(dict.fromkeys(repr(name) for one in asked for name in one.mixers))
        of = f" of a {model_type!r} model" if model_type else ", those of published architectures"
        raise ValueError(f"mixer is {brief(config.mixer)}; accepted: {accepted}{of}")
    return fitting


def _written(architecture: Architecture, config: ModelConfig) -> tuple[ModelConfig, dict[str, Any]]:
    """Return the configuration after a round trip through config.json, and the latter."""
    values = {"architectures": [architecture.model_class], "model_type": architecture.name, "dtype": "float32"}
    values |= architecture.write(config)
    again = architecture.config(CONFIG, values)
    problem = _difference(config, again)
    if problem:
        raise ValueError(problem)
    return again, values


def _tensors(model: Model, architecture: Architecture, config: ModelConfig) -> dict[str, Tensor]:
    weights = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for part in architecture.parts(config):
        tensors |= {name: value.cpu() for name, value in part.split(weights.pop(part.ours)).items()}
    assert not weights, f"{architecture.name} has no place for {', '.join(weights)}"
    return tensors


def _difference(ours: ModelConfig, theirs: ModelConfig) -> str:
    """Return the first field of a configuration that makes another model of it, and its value; "" if none does."""
    want, got = _layers(ours), _layers(theirs)
    if want == got:
        return ""
    for name in (field.name for field in fields(ModelConfig) if field.name != "mixer_options"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other and _changes(ours, name, other, want):
            return f"{name} is {brief(mine)}, where it would become {brief(other)}"
    for mixer in dict.fromkeys(ours.mixers):
        options, others = ours.options_of(mixer), theirs.options_of(mixer)
        for name in (*options, *others):
            mine, other = options.get(name), others.get(name)
            changed = {**options, name: other} if name in others else {k: v for k, v in options.items() if k != name}
            if mine != other and _changes(ours, "mixer_options", {**ours.mixer_options, mixer: changed}, want):
                is_here = f"is {brief(mine)}" if name in options else "is not given"
                would = f"become {brief(other)}" if name in others else "be left out"
                return f"mixer_options[{mixer!r}][{name!r}] {is_here}, where it would {would}"
    module, name = next(key for key in (*want, *got) if want.get(key) != got.get(key))
    mine, other = brief(want.get((module, name))), brief(got.get((module, name)))
    return f"{name} of {module} is {mine}, where it would become {other}"


def _changes(config: ModelConfig, name: str, value: Any, want: Layers) -> bool:
    try:
        return _layers(config.replace(**{name: value})) != want
    except ValueError:  # it does not fit the other fields
        return True


def _layers(config: ModelConfig) -> Layers:
    """Return every number, name and shape that the layers of a model compute with."""
    values: Layers = {}
    for where, module in blueprint(config, "the model").named_modules():
        if isinstance(module, nn.Dropout):
            continue
        values[where, "class"] = type(module).__name__
        values |= {(where, name): tuple(p.shape) for name, p in module.named_parameters(recurse=False)}
        if where.startswith("backbone."):
            own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
            values |= {(where, name): value for name, value in own.items() if isinstance(value, (*PLAIN, Mapping))}
    return values
