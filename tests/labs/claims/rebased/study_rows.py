"""Made-up rows of the quick runs of every recall study, as the papers would have them ("as claimed") or not ("not").

A seed moves a number by a thousandth, so that intervals have a width and means are those of seed 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from linnet.labs.claims.rebased import ablation, state_law, studies
from linnet.labs.core.claim import Setting
from linnet.labs.core.results import Row
from linnet.labs.recall.config import RecallConfig

Metrics = dict[str, Any]


@cache
def quick(name: str) -> list[RecallConfig]:
    """The law of bytes has none: its smallest runs, which the hour enlarges."""
    if name == "state_law":
        return state_law.small()
    return [unit.work for unit in studies()[name].units(Setting("quick"))]


def made(name: str, claimed: bool, seeds: int = 3) -> list[Row]:
    collected = []
    for config in quick(name):
        if config.seed < seeds:
            metrics: Metrics = {"mixer_bytes": 100, "ending": ""} | METRICS[name](config, claimed)
            metrics["accuracy"] = metrics.get("accuracy", 0.9) + (config.seed - 1) / 1000
            collected.append({"config": config.to_dict(), "metrics": metrics | {"chosen_by": metrics["accuracy"]}})
    return collected


def of_ranking(config: RecallConfig, claimed: bool) -> Metrics:
    means = {"softmax": 0.995, "based": 0.9, "rebased": 0.92, "elu": 0.5 if claimed else 0.95, "identity": 0.3}
    return {"accuracy": means.get(config.mixer, 0.05)}


def of_length(config: RecallConfig, claimed: bool) -> Metrics:
    """Based loses .3 and ReBased .02 from the short to the long, or both .02."""
    long = config.seq_len > 16
    lost = 0.3 if claimed and config.mixer == "based" else 0.02
    recall = 0.9 - lost * long
    probe = {"rest": 0.5 + (0.2 if claimed else 0.01) * long, "without": recall + (0.1 if claimed else 0.0)}
    probe |= {"weight": 0.01, "floor": 0.3, "near": 0.1}
    return {"accuracy": recall, "floor": {**probe, "quantiles": [0.0] * 7}}


def of_ablation(config: RecallConfig, claimed: bool) -> Metrics:
    return {"accuracy": 0.9 if claimed and ablation.name_of(config) == ablation.FULL else 0.6}


def of_drift(config: RecallConfig, claimed: bool) -> Metrics:
    alone = 0.47 if config.decay_all else 1.0
    gamma = alone if claimed else 0.75
    gains = {"gamma_mean": gamma, "gamma_std": 0.1, "beta_mean": 0.01, "beta_std": 0.3, "decay_alone": alone}
    return {"gains": gains}


def of_rates(config: RecallConfig, claimed: bool) -> Metrics:
    """Good at three rates, two, one; or all at all of them."""
    good = {ablation.FULL: 0.1, "based": 0.02, ablation.PLAIN: 0.005}[ablation.name_of(config)]
    return {"accuracy": 0.97 if config.lr < good or not claimed else 0.5}


def of_state_law(config: RecallConfig, claimed: bool) -> Metrics:
    if config.mixer == "window":
        return {"accuracy": config.options["window"] / 20, "mixer_bytes": 100 * config.options["window"]}
    large = config.key_dim == max(c.key_dim or 0 for c in quick("state_law") if c.mixer == config.mixer)
    start = 0.6 if config.mixer == "delta" or not claimed else 0.4
    return {"accuracy": start + (0.3 if claimed else -0.2) * large, "mixer_bytes": 1320 if large else 680}


def of_shift(config: RecallConfig, claimed: bool) -> Metrics:
    return {"accuracy": 0.99 if config.first or not claimed else 0.12}


def of_iou(config: RecallConfig, claimed: bool) -> Metrics:
    iou = {"softmax": 0.9 if claimed else 0.2, "rebased": 0.2, "based": 0.15}[config.mixer]
    look = {"p": 0.3, "iou": iou + (config.seed - 1) / 1000, "hit": 0.9, "entropy": 1.0}
    example = {"weights": [[0.1, 0.9], [0.7, 0.3]], "targets": [[0, 1], [1, 0]]}
    return {"accuracy": 0.96, "ending": "stopped", "iou": {"mean": look, "heads": [look], "example": example}}


def of_forgetting(config: RecallConfig, claimed: bool) -> Metrics:
    new = 95 if "delta" in config.mixer and claimed else 50
    return {"slices": {"kept": [950, 1000], "updated": [10 * new + config.seed - 1, 1000]}}


def of_extrapolation(config: RecallConfig, claimed: bool) -> Metrics:
    kept = 0.3 if config.positions == "learned" and claimed else 0.95
    far = {"seq_len": 8 * config.seq_len, "pairs": config.pairs, "accuracy": kept + (config.seed - 1) / 1000}
    return {"longer": [{"seq_len": config.seq_len, "pairs": config.pairs, "accuracy": 1.0}, far]}


METRICS: dict[str, Callable[[RecallConfig, bool], Metrics]] = {
    "ranking": of_ranking,
    "length": of_length,
    "ablation": of_ablation,
    "floor": of_length,
    "drift": of_drift,
    "rates": of_rates,
    "state_law": of_state_law,
    "shift": of_shift,
    "iou": of_iou,
    "forgetting": of_forgetting,
    "extrapolation": of_extrapolation,
}
SHOWN = {
    "ranking": 0.4,
    "length": 0.28,
    "ablation": 0.3,
    "floor": 0.2,
    "drift": 0.47,
    "rates": (0.97 * 3 - 0.97 * 2 - 0.5) / 3,
    "state_law": 0.2,
    "shift": 0.99,
    "iou": 0.05,
    "forgetting": 0.45,
    "extrapolation": 0.95,
}  # the first number of each, as claimed
