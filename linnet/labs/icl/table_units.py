"""The work of the paper's Table 1: the requested part, split into units that can run in parallel.

    Chain   models of one kind, one noise and one seed, from shallow to deep      Rules   the baselines of one noise

The fast recipe grows DIAG and GD++ from the model with one layer less, so their chains always start at one layer; FULL
is trained at the requested depths only. With the paper's recipe every model is its own chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import unknown
from ...regress.model import KINDS
from ..core.results import Store
from .noise import PAPER_NOISE, Noise
from .recipes import RECIPES, Cell
from .regression import Regression

EXPERIMENT = "icl-table"
MAX_LAYERS = 8  # the paper's table ends at 7, one of its figures at 8
MAX_SEEDS = 1000  # a Cell takes 0 to 999
GROWN = ("diag", "gd++")  # by the fast recipe, from the model with one layer less
BASELINES = ("ols", "const_rr", "ada_rr", "tuned_rr", "gd_ada_rr", "bayes")
COST = {"full": 8.0, "diag": 1.0, "gd++": 1.0}  # rough cost of a layer, for estimates of the time left


@dataclass(frozen=True)
class Plan:
    """The requested part of the table; values outside the table are refused."""

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
                raise ValueError(f"noise is {noise!r}; accepted: its canonical name, {Noise.parse(noise).name!r}")
        for name, value, least in (("seeds", self.seeds, 1), ("sequences", self.sequences, 2)):
            if value < least:
                raise ValueError(f"{name} is {value}; accepted: {least} or more")
        if self.seeds > MAX_SEEDS:
            raise ValueError(f"seeds is {self.seeds}; accepted: 1 to {MAX_SEEDS}")
        if not (self.kinds and self.layers and self.noise):
            raise ValueError("nothing is requested; accepted: at least one model, one number of layers and one noise")


@dataclass(frozen=True)
class Chain:
    """Models of one kind, one noise and one seed; the depths in `done` have their row."""

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
    """Return the units with missing rows, the longest first."""
    units: list[Unit] = []
    for kind in sorted(plan.kinds, key=lambda kind: -COST[kind]):
        for noise in plan.noise:
            for seed in range(plan.seeds):
                for depths in _chains(plan, kind):
                    chain = Chain(kind, noise, seed, plan.recipe, plan.sequences, str(out), depths)
                    done = tuple(layers for layers in depths if store.has(chain.config(layers)))
                    units.append(replace(chain, done=done))
    for noise in plan.noise:
        rules = Rules(noise, plan.sequences)
        units.append(Rules(noise, plan.sequences, tuple(n for n in BASELINES if not store.has(rules.config(n)))))
    return [unit for unit in units if unit.missing()]


def _chains(plan: Plan, kind: str) -> list[tuple[int, ...]]:
    """Return the depths trained in sequence; DIAG and GD++ grow from one depth to the next."""
    if plan.recipe == "paper":
        return [(layers,) for layers in sorted(set(plan.layers), reverse=True)]
    if kind in GROWN:
        return [tuple(range(1, max(plan.layers) + 1))]
    return [tuple(sorted(set(plan.layers)))]


def cost(config: Mapping[str, Any]) -> float:
    """Return the relative duration of a row."""
    return COST.get(config["kind"], 1.0) * config.get("layers", 1.0)
