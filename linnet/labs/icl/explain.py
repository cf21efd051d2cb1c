"""Explain a trained in-context transformer: one document of numbers and sentences, for a page, a table or JSON.

    explain(ICLTransformer.load("model.safetensors"))["layers"][0]["sentence"]

    layers      each layer as an optimiser step            linnet/labs/icl/explain_layers.py, explain_words.py
    profile     loss against sigma, compared with ridge    linnet/labs/icl/explain_profiles.py
    distances   of each prediction to known methods        the same
    ablation    each omega removed from all layers         linnet/labs/icl/explain_ablation.py

Losses are ½|w - oracle|² (Score.sharp), the paper's adjusted half squared error with less noise. None replaces numbers
that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from ...json_file import finite_or_none
from ...regress.model import ICLTransformer
from .evaluate import Score, evaluate_model
from .explain_ablation import ablate
from .explain_layers import NAMES, Layer, noise_levels, read_layers, run_at
from .explain_profiles import Profiles, distances, sigma_grid
from .explain_words import describe
from .noise import Noise

FORMAT = 1
SEQUENCES = 2000
Report = Callable[[str, float], None]  # the current task, and the fraction of it that is done


def trained_noise(model: ICLTransformer) -> Noise:
    """Return the noise that the model was trained with, according to its file."""
    name = model.config.made.get("noise")
    if not isinstance(name, str):
        raise ValueError("the model does not record its training noise; give it, such as --noise U5")
    return Noise.parse(name)


def explain(
    model: ICLTransformer,
    noise: Noise | None = None,
    sequences: int = SEQUENCES,
    seed: int = 0,
    ablation: bool = True,
    report: Report | None = None,
) -> dict[str, Any]:
    """Return the document of a model, from `sequences` sequences for each number; same seed, same document."""
    if sequences < 2:
        raise ValueError(f"{sequences} sequences were requested; accepted: 2 or more")
    if not 0 <= seed < 2**63:
        raise ValueError(f"the seed is {seed}; accepted: 0 to 2^63 - 1")
    noise = trained_noise(model) if noise is None else noise
    model = deepcopy(model).double()
    progress = report or (lambda what, part: None)
    progress("layers", 0.0)
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
        "profile": _profile(model, noise, sequences, seed, progress),
        "distances": distances(model, noise, sequences, seed),
        "ablation": _ablation(model, noise, sequences, seed, progress) if ablation else None,
    }
    return finite_or_none(document)


def _layer(layer: Layer) -> dict[str, Any]:
    named = {"omega": dict(zip(NAMES, layer.omega, strict=True))}
    if layer.nearest is not None:
        named["nearest"] = dict(zip(NAMES, layer.nearest, strict=True))
    return {**asdict(layer), **named, "sentence": describe(layer)}


def _profile(model: ICLTransformer, noise: Noise, sequences: int, seed: int, progress: Report) -> list[dict[str, Any]]:
    profiles, sigmas, rows = Profiles(model, noise, sequences, seed), sigma_grid(noise), []
    for done, sigma in enumerate(sigmas):
        progress("noise levels", done / len(sigmas))
        scores = profiles.at(sigma)
        entries = {name: brief(score) for name, score in scores.items()}
        inside = noise_levels(noise)[0] <= sigma <= noise.largest
        rows.append({"sigma": sigma, "inside": inside, "oracle": scores["model"].oracle, "scores": entries})
    return rows


def _ablation(model: ICLTransformer, noise: Noise, sequences: int, seed: int, progress: Report) -> list[dict[str, Any]]:
    rows = ablate(model, noise, 5 * sequences, seed, lambda part: progress("refits", part))
    return [
        {"without": row.without, "plain": brief(row.plain), "refit": None if row.refit is None else brief(row.refit)}
        for row in rows
    ]


def brief(score: Score) -> dict[str, float]:
    """Return the displayed parts of a score: the mean and its error, and the statistics robust to outliers."""
    names = {"mean": "sharp", "se": "sharp_se", "median": "median", "trimmed": "trimmed", "diverged": "diverged"}
    return {shown: getattr(score, name) for shown, name in names.items()}
