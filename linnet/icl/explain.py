"""A trained in-context transformer explained: one document of plain numbers and sentences, for a page, a table or JSON.

    explain(ICLTransformer.load("model.safetensors"))["layers"][0]["sentence"]

    layers      each layer as an optimiser step            linnet/icl/explain_layers.py, explain_words.py
    profile     loss against sigma, beside ridge           linnet/icl/explain_profiles.py
    distances   of each layer's answer to known methods    the same
    ablation    each omega taken out of all layers         linnet/icl/explain_ablation.py

Losses are ½|w - oracle|² (Score.sharp), the paper's adjusted half squared error with less noise. None stands for a
number that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from ..models import ICLTransformer
from ..tasks import Noise
from .evaluate import Score, evaluate_model
from .explain_ablation import ablate
from .explain_layers import NAMES, Layer, noise_levels, read_layers, run_at
from .explain_profiles import Profiles, distances, sigma_grid
from .explain_words import describe

FORMAT = 1
SEQUENCES = 2000
Report = Callable[[str, float], None]  # what is being done, and the part of it that is done


def trained_noise(model: ICLTransformer) -> Noise:
    """The noise that the file says the model was trained with."""
    name = model.config.made.get("noise")
    if not isinstance(name, str):
        raise ValueError("the model does not say what noise it was trained with; give it, such as --noise U5")
    return Noise.parse(name)


def explain(
    model: ICLTransformer,
    noise: Noise | None = None,
    sequences: int = SEQUENCES,
    seed: int = 0,
    ablation: bool = True,
    report: Report | None = None,
) -> dict[str, Any]:
    """All there is to say about a model, from `sequences` sequences for each number; same seed, same document."""
    if sequences < 2:
        raise ValueError(f"{sequences} sequences were asked for; accepted: 2 or more")
    if not 0 <= seed < 2**63:
        raise ValueError(f"the seed is {seed}; accepted: 0 to 2^63 - 1")
    noise = trained_noise(model) if noise is None else noise
    model = deepcopy(model).double()
    tell = report or (lambda what, part: None)
    tell("layers", 0.0)
    layers = read_layers(model, [run_at(model, sigma, sequences, seed) for sigma in noise_levels(noise)])
    config = model.config
    document = {
        "format": FORMAT,
        "model": {name: getattr(config, name) for name in ("kind", "layers", "d", "n", "heads", "made")},
        "parameters": model.parameter_count(),
        "noise": noise.name,
        "levels": noise_levels(noise),
        "sequences": sequences,
        "seed": seed,
        "score": asdict(evaluate_model(model, noise, max(10 * sequences, 2))),
        "layers": [_layer(layer) for layer in layers],
        "profile": _profile(model, noise, sequences, seed, tell),
        "distances": distances(model, noise, sequences, seed),
        "ablation": _ablation(model, noise, sequences, seed, tell) if ablation else None,
    }
    return plain(document)


def _layer(layer: Layer) -> dict[str, Any]:
    named = {"omega": dict(zip(NAMES, layer.omega, strict=True))}
    if layer.nearest is not None:
        named["nearest"] = dict(zip(NAMES, layer.nearest, strict=True))
    return {**asdict(layer), **named, "sentence": describe(layer)}


def _profile(model: ICLTransformer, noise: Noise, sequences: int, seed: int, tell: Report) -> list[dict[str, Any]]:
    profiles, sigmas, rows = Profiles(model, noise, sequences, seed), sigma_grid(noise), []
    for done, sigma in enumerate(sigmas):
        tell("noise levels", done / len(sigmas))
        found = profiles.at(sigma)
        entries = {name: brief(score) for name, score in found.items()}
        inside = noise_levels(noise)[0] <= sigma <= noise.largest
        rows.append({"sigma": sigma, "inside": inside, "oracle": found["model"].oracle, "scores": entries})
    return rows


def _ablation(model: ICLTransformer, noise: Noise, sequences: int, seed: int, tell: Report) -> list[dict[str, Any]]:
    rows = ablate(model, noise, 5 * sequences, seed, lambda part: tell("refits", part))
    return [
        {"without": row.without, "plain": brief(row.plain), "refit": None if row.refit is None else brief(row.refit)}
        for row in rows
    ]


def brief(score: Score) -> dict[str, float]:
    """What is shown of a score: the mean and its error, and what a few exploding sequences cannot move."""
    names = {"mean": "sharp", "se": "sharp_se", "median": "median", "trimmed": "trimmed", "diverged": "diverged"}
    return {shown: getattr(score, name) for shown, name in names.items()}


def plain(value: Any) -> Any:
    """As JSON has it: lists and dicts, and None for a number that is not finite."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
