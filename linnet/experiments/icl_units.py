"""What there is to do for the paper's Table 1: the part that is asked for, cut into units that can run side by side.

    Chain   models of one kind, one noise and one seed, from shallow to deep      Rules   the baselines of one noise

The fast recipe grows DIAG and GD++ from the model a layer shallower, so their chains begin at one layer whatever is
asked for; FULL is trained at the depths asked for. With the paper's recipe every model is a chain by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import unknown
from ..icl.recipes import RECIPES, Cell
from ..models.icl import KINDS
from ..tasks import PAPER_NOISE, Noise, Regression
from .results import Store

EXPERIMENT = "icl-table"
MAX_LAYERS = 8  # the paper's table ends at 7, one of its figures at 8
MAX_SEEDS = 1000  # a Cell takes 0 to 999
GROWN = ("diag", "gd++")  # by the fast recipe, from the model a layer shallower
BASELINES = ("ols", "const_rr", "ada_rr", "tuned_rr", "gd_ada_rr", "bayes")
COST = {"full": 8.0, "diag": 1.0, "gd++": 1.0}  # of a layer, roughly, for estimates of the time that is left


@dataclass(frozen=True)
class Plan:
    """The part of the table that is asked for; refuses what is not in it."""

    kinds: tuple[str, ...] = KINDS
    layers: tuple[int, ...] = tuple(range(1, 8))
    noise: tuple[str, ...] = tuple(noise.name for noise in PAPER_NOISE)
    seeds: int = 1
    recipe: str = "fast"
    sequences: int = 100_000

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise unknown("model", kind, KINDS)
        if self.recipe not in RECIPES:
            raise unknown("recipe", self.recipe, RECIPES)
        for layers in self.layers:
            if not 1 <= layers <= MAX_LAYERS:
                raise ValueError(f"layers is {layers}; accepted: 1 to {MAX_LAYERS}")
        for noise in self.noise:
            if Noise.parse(noise).name != noise:
                raise ValueError(f"noise is {noise!r}; accepted: its own name, {Noise.parse(noise).name!r}")
        for name, value, least in (("seeds", self.seeds, 1), ("sequences", self.sequences, 2)):
            if value < least:
                raise ValueError(f"{name} is {value}; accepted: {least} or more")
        if self.seeds > MAX_SEEDS:
            raise ValueError(f"seeds is {self.seeds}; accepted: 1 to {MAX_SEEDS}")
        if not (self.kinds and self.layers and self.noise):
            raise ValueError("nothing is asked for; accepted: one model, one number of layers and one noise, or more")


@dataclass(frozen=True)
class Chain:
    """Models of one kind, one noise and one seed; those of `done` have their row."""

    kind: str
    noise: str
    seed: int
    recipe: str
    sequences: int
    out: str
    depths: tuple[int, ...]
    done: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} on {self.noise}, seed {self.seed}"

    def cell(self, layers: int) -> Cell:
        return Cell(self.kind, self.noise, layers, seed=self.seed, recipe=self.recipe)

    def config(self, layers: int) -> dict[str, Any]:
        return {"experiment": EXPERIMENT, **asdict(self.cell(layers)), "sequences": self.sequences}

    def missing(self) -> list[dict[str, Any]]:
        return [self.config(layers) for layers in self.depths if layers not in self.done]


@dataclass(frozen=True)
class Rules:
    """The baselines of one noise; `names` are those without a row."""

    noise: str
    sequences: int
    names: tuple[str, ...] = BASELINES

    def __str__(self) -> str:
        return f"baselines on {self.noise}"

    @property
    def problem(self) -> Regression:
        return Regression(Noise.parse(self.noise))

    def config(self, name: str) -> dict[str, Any]:
        about = {"experiment": EXPERIMENT, "kind": name, "noise": self.noise, "sequences": self.sequences}
        return about | {"d": self.problem.d, "n": self.problem.n}

    def missing(self) -> list[dict[str, Any]]:
        return [self.config(name) for name in self.names]


Unit = Chain | Rules


def make_units(plan: Plan, out: Path, store: Store) -> list[Unit]:
    """What there is to do, the longest first; units with nothing left are not there."""
    found: list[Unit] = []
    for kind in sorted(plan.kinds, key=lambda kind: -COST[kind]):
        for noise in plan.noise:
            for seed in range(plan.seeds):
                for depths in _chains(plan, kind):
                    chain = Chain(kind, noise, seed, plan.recipe, plan.sequences, str(out), depths)
                    done = tuple(layers for layers in depths if store.has(chain.config(layers)))
                    found.append(replace(chain, done=done))
    for noise in plan.noise:
        rules = Rules(noise, plan.sequences)
        found.append(Rules(noise, plan.sequences, tuple(n for n in BASELINES if not store.has(rules.config(n)))))
    return [unit for unit in found if unit.missing()]


def _chains(plan: Plan, kind: str) -> list[tuple[int, ...]]:
    """Depths that are trained one after another, those of DIAG and GD++ one from another."""
    if plan.recipe == "paper":
        return [(layers,) for layers in sorted(set(plan.layers), reverse=True)]
    if kind in GROWN:
        return [tuple(range(1, max(plan.layers) + 1))]
    return [tuple(sorted(set(plan.layers)))]


def cost(config: Mapping[str, Any]) -> float:
    """How long a row takes, compared with others."""
    return COST.get(config["kind"], 1.0) * config.get("layers", 1.0)
