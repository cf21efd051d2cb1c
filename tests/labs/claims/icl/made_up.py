"""Rows that nothing was trained for: the paper's own values as ours, or what a test puts in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.labs.core.claim import Claim, Config, Finding, Setting
from linnet.labs.core.results import Row, make_row
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.paper import BASELINES, EXACT, TABLE1, floor

Cell = tuple[str, int, str]
ERROR = 0.0005


def configs(claim: Claim, budget: str) -> list[Config]:
    return claim.configs(Setting(budget, Path("somewhere")))


def seeded(of: Sequence[Config], seeds: int = 5) -> list[Config]:
    """The same models with so many seeds each; what is not trained stays as it is."""
    trained = {index for index, config in enumerate(of) if "layers" in config}
    return [
        config | ({"seed": seed} if index in trained else {})
        for index, config in enumerate(of)
        for seed in range(seeds if index in trained else 1)
    ]


def score(sharp: float, se: float = ERROR) -> dict[str, Any]:
    result = {"loss": sharp, "se": se, "sharp": sharp, "sharp_se": se, "median": sharp, "trimmed": sharp}
    return result | {"diverged": 0.0, "oracle": 1.0, "query_se": max(se, 0.01 * sharp), "count": 100_000}


def printed(config: Config) -> float:
    """What the paper has for a cell; Bayes and models of one layer as we know them."""
    kind, noise = config["kind"], config["noise"]
    if kind == "one_step":
        return TABLE1["diag", 1, noise]
    least = floor(kind, 1, Noise.parse(noise))
    if config.get("layers") == 1 and least is not None:
        return least[0]
    if "layers" in config:
        return TABLE1[kind, config["layers"], noise]
    return EXACT[noise].bayes if kind == "bayes" else BASELINES.get((kind, noise), 1.0)


def cells(of: Sequence[Config], ours: Mapping[Cell, float] | None = None, times: float = 1.0) -> list[Row]:
    """Rows of the table and of the baselines: `times` the paper's value, or that of `ours`."""
    collected = []
    for config in of:
        if config["experiment"] in ("icl-table", "icl-one-step"):
            name = (config["kind"], config.get("layers", 0), config["noise"])
            value = (ours or {}).get(name, times * printed(config))
            collected.append(make_row(config, score(value), 2.0))
    return collected


def profile(config: Config, mean: Mapping[float, float] | float) -> dict[str, list[float]]:
    """A curve over the sigmas of a configuration: by sigma, or the same everywhere."""
    values = [mean if isinstance(mean, float) else mean[sigma] for sigma in config["sigmas"]]
    result = {"mean": values, "se": [0.01] * len(values), "median": [value / 2 for value in values]}
    return result | {"diverged": [0.0] * len(values)}


def failed(finding: Finding) -> list[str]:
    """The controls that were not passed, in the words of the scoreboard."""
    return [control.short for control in finding.evidence.controls if not control.passed]


def number(finding: Finding, start: str) -> float:
    """The one number of a finding that begins like this."""
    (result,) = [one.ours for one in finding.numbers if one.what.startswith(start)]
    return result
