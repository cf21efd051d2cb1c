"""Made-up rows of the runs of every recall study, as the papers would have them ("as claimed") or not ("not").

A seed moves a number by a thousandth, so that intervals have a width and means are those of the middle seed. Training
has settled, and nothing is at its ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from linnet.labs.claims.rebased import ablation, mamba, state_law, studies
from linnet.labs.core.claim import Setting
from linnet.labs.core.results import Row
from linnet.labs.recall.config import RecallConfig
from tests.labs.recall.made_up import CURVE

Metrics = dict[str, Any]
Runs = Sequence[RecallConfig]


@cache
def runs(name: str, budget: str) -> tuple[RecallConfig, ...]:
    """Of the published sizes one learning rate; a claim without quick runs has small ones instead."""
    if name == "state_law":
        large = state_law.ZOOLOGY, (9100, 39780), (1e-2,), 5
        return tuple(state_law.small() if budget == "quick" else state_law.grid(*large))
    if name == "mamba" and budget == "quick":
        return tuple(mamba.same_bytes(mamba.EIGHT, (1e-2,), 5))
    every = [unit.work for unit in studies()[name].units(Setting(budget))]
    return tuple(one for one in every if budget == "quick" or name == "rates" or one.lr == every[0].lr)


def made(name: str, claimed: bool, seeds: int = 3, budget: str = "quick") -> list[Row]:
    collected = []
    for config in runs(name, budget):
        if config.seed < seeds:
            metrics: Metrics = {"mixer_bytes": 100, "ending": "", "curve": CURVE}
            metrics |= METRICS[name](config, claimed, runs(name, budget))
            metrics["accuracy"] = metrics.get("accuracy", 0.9) + moved(config)
            collected.append({"config": config.to_dict(), "metrics": metrics | {"chosen_by": metrics["accuracy"]}})
    return collected


def moved(config: RecallConfig) -> float:
    return (config.seed - 1) / 1000


def of_ranking(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    means = {"softmax": 0.995, "based": 0.9, "rebased": 0.92, "identity": 0.3}
    means |= dict.fromkeys(("elu", "mamba"), 0.5 if claimed else 0.95)
    return {"accuracy": means.get(config.mixer, 0.05)}


def of_length(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    """Based loses .3 and ReBased .02 from the short to the long, or both .02."""
    long = config.seq_len > min(other.seq_len for other in every)
    lost = 0.3 if claimed and config.mixer == "based" else 0.02
    recall = 0.9 - lost * long
    probe = {"rest": 0.5 + (0.2 if claimed else 0.01) * long, "without": recall + (0.1 if claimed else 0.0)}
    probe |= {"weight": 0.01, "floor": 0.3, "near": 0.1}
    return {"accuracy": recall, "floor": {**probe, "quantiles": [0.0] * 7}}


def of_ablation(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    return {"accuracy": 0.9 if claimed and ablation.name_of(config) == ablation.FULL else 0.6}


def of_drift(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    alone = 0.47 if config.decay_all else 1.0
    gamma = alone + moved(config) if claimed else 0.75
    gains = {"gamma_mean": gamma, "gamma_std": 0.1, "beta_mean": 0.01, "beta_std": 0.3, "decay_alone": alone}
    return {"gains": gains}


def of_rates(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    """Good at all rates, at all but the highest, at the lowest; or Based at all of them and ReBased at the lowest."""
    rates = sorted({other.lr for other in every})
    name = ablation.name_of(config)
    number = {ablation.FULL: len(rates) if claimed else 1, "based": len(rates) - claimed, ablation.PLAIN: 1}[name]
    return {"accuracy": 0.97 if config.lr in rates[:number] else 0.5}


def of_state_law(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    if config.mixer == "window":
        share = config.options["window"] / config.seq_len
        return {"accuracy": share, "mixer_bytes": 100 * config.options["window"]}
    large = config.key_dim == max(c.key_dim or 0 for c in every if c.mixer == config.mixer)
    start = 0.6 if config.mixer == "delta" or not claimed else 0.4
    return {"accuracy": start + (0.3 if claimed else -0.2) * large, "mixer_bytes": 1320 if large else 680}


def of_shift(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    return {"accuracy": 0.98 if config.first or not claimed else 0.12}


def of_iou(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    iou = {"softmax": 0.9, "rebased": 0.2, "based": 0.15 if claimed else 0.25}[config.mixer]
    look = {"p": 0.3, "iou": iou + moved(config) * (config.mixer != "based"), "hit": 0.9, "entropy": 1.0}
    example = {"weights": [[0.1, 0.9], [0.7, 0.3]], "targets": [[0, 1], [1, 0]]}
    return {"accuracy": 0.96, "ending": "stopped", "iou": {"mean": look, "heads": [look], "example": example}}


def of_forgetting(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    new = 95 if "delta" in config.mixer and claimed else 50
    return {"slices": {"kept": [950, 1000], "updated": [10 * new + config.seed * ("delta" in config.mixer), 1000]}}


def of_extrapolation(config: RecallConfig, claimed: bool, every: Runs) -> Metrics:
    kept = 0.3 if (config.positions == "learned") == claimed else 0.9
    far = {"seq_len": 8 * config.seq_len, "pairs": config.pairs, "accuracy": kept + config.seed / 1000 * (kept > 0.5)}
    return {"longer": [{"seq_len": config.seq_len, "pairs": config.pairs, "accuracy": 1.0}, far]}


METRICS: dict[str, Callable[[RecallConfig, bool, Runs], Metrics]] = {
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
    "mamba": of_ranking,
}
SHOWN = {
    "ranking": 0.4,
    "length": 0.28,
    "ablation": 0.3,
    "floor": 0.1,
    "drift": 0.0,
    "rates": (0.97 - 0.5) / 3,
    "state_law": 0.3,
    "shift": 0.12,
    "iou": 0.05,
    "forgetting": 0.451,
    "extrapolation": 0.601,
    "mamba": 0.4,
}  # the first number of each, as claimed: the one that decides
