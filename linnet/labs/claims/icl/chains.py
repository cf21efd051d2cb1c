"""The units that the in-context claims share: chains of Table 1, ridge baselines, and losses by noise level.

    chains    models of one kind and noise from shallow to deep: the rows of `linnet icl table` with the same
              configurations, then a profile of those in PROFILED, as the model is at hand
    rules     one baseline on one noise, again a row of `linnet icl table`
    profile   config: cell or rules, sigmas [S]     metrics: mean, se, median, diverged, each [S], sigma held fixed

Every claim takes whole units from here, so that a model that two of them need is trained once. "smoke" takes STEPS
steps of Adam to check that everything runs: such models show nothing, and `too_few` leaves every claim untested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from ....regress.model import ICLTransformer
from ...core.claim import Config, Finding, Setting, Unit, rounded, unit, untested
from ...core.results import Row, make_row
from ...icl import explain_profiles
from ...icl.evaluate import Score, predictor, profile
from ...icl.noise import Noise
from ...icl.paper import NAMES
from ...icl.recipes import Cell, Trained, paper
from ...icl.table import MODELS, model_path, run_unit, saved_model
from ...icl.table_units import Chain, Rules

PROFILE = "icl-profile"
UNIFORM, TWO = "U5", "{1,3}"  # the noises studied in detail
PROFILED = {
    ("diag", UNIFORM): (2, 3, 4, 7),
    ("gd++", UNIFORM): (2, 3, 7),
    ("full", UNIFORM): (2, 3, 7),
    ("diag", TWO): (3, 7),
    ("full", TWO): (3, 7),
}
QUICK = (
    ("diag", UNIFORM, (1, 2, 3, 4)),
    ("gd++", UNIFORM, (1, 2, 3)),
    ("full", UNIFORM, (2, 3)),
    ("diag", TWO, (1, 2, 3)),
    ("full", TWO, (3,)),
)
SEQUENCES = {"smoke": 200, "quick": 20_000, "hour": 100_000, "paper": 100_000}  # of a cell of the table
PROFILE_SEQUENCES = {"smoke": 200, "quick": 10_000, "hour": 20_000, "paper": 100_000}
ROUNDED = 1e-15  # a loss below this is rounding
FEWEST = 10_000  # sequences that a verdict needs
SEEDS = 5  # of the paper's recipe
STEPS = 3
SECONDS = {"full": 8.0, "diag": 3.8, "gd++": 2.0}  # of a layer, on one core
NAMED = {"full": "FULL", "diag": "DIAG", "gd++": "GD++", "const_rr": "ConstRR", "ada_rr": "AdaRR"}
NAMED |= {"tuned_rr": "TunedRR", "gd_ada_rr": "GD-AdaRR", "bayes": "Bayes", "ols": "OLS", "one_step": "one layer"}


@dataclass(frozen=True)
class Grown:
    """A chain, and the profiles measured on its models."""

    chain: Chain
    profiles: tuple[Config, ...] = ()
    smoke: bool = False


def chains(
    setting: Setting, noises: Collection[str] = NAMES, kinds: Collection[str] = ("full", "diag", "gd++")
) -> list[Unit]:
    """Return the chains of a budget on these noises, the longest first."""
    return [_unit(chain, setting) for chain in _planned(setting) if chain.noise in noises and chain.kind in kinds]


def repeats(setting: Setting, noise: str, kinds: Collection[str], depths: tuple[int, ...]) -> list[Unit]:
    """Return chains of more seeds than `chains` has at the hour budget, where those of the whole table are too dear."""
    if setting.budget != "hour":
        return []
    many, out = SEQUENCES[setting.budget], str(setting.out)
    planned = [Chain(kind, noise, seed, "fast", many, out, depths) for kind in kinds for seed in range(1, SEEDS)]
    return [_unit(chain, setting) for chain in planned]


def rules(setting: Setting, noises: Collection[str], names: Collection[str]) -> list[Unit]:
    """Return one unit for each baseline and noise."""
    wanted = [Rules(noise, SEQUENCES[setting.budget], (name,)) for noise in noises for name in names]
    return [Unit(run_unit, one, tuple(one.missing()), 3.0 * one.sequences / 100_000) for one in wanted]


def rule_profile(setting: Setting, noise: str) -> Unit:
    """Return the unit that profiles the ridge baselines and Bayes by noise level in one row."""
    config = {"experiment": PROFILE, "kind": "rules", "noise": noise, "d": 10, "n": 20, "seed": 0}
    return unit(_profile_rules, config | _levels(setting, noise), seconds=0.4 * PROFILE_SEQUENCES[setting.budget] / 1e3)


def rows(work: Grown) -> Iterator[Row]:
    """Yield the rows of a chain and its profiles; the runner calls this."""
    (Path(work.chain.out) / MODELS).mkdir(parents=True, exist_ok=True)
    yield from run_unit(work.chain, _few_steps) if work.smoke else run_unit(work.chain)
    for config in work.profiles:
        began = perf_counter()
        path = model_path(Path(work.chain.out), work.chain.cell(config["layers"]))
        model = saved_model(path, config["kind"], config["layers"])
        yield make_row(config, _profile_model(model, config), perf_counter() - began)


def cells(results: Sequence[Row]) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Return (kind, layers, noise) -> metrics of the best seed of each model; baselines have 0 layers."""
    best: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in results:
        config, metrics = row["config"], row["metrics"]
        if config["experiment"] == PROFILE or metrics["sharp"] is None:
            continue
        name = (config["kind"], config.get("layers", 0), config["noise"])
        if name not in best or metrics["sharp"] < best[name]["sharp"]:
            best[name] = metrics
    return best


def profiles(results: Sequence[Row], noise: str, seed: int = 0) -> dict[str, dict[float, dict[str, float | None]]]:
    """Return name, such as "DIAG 3" or "AdaRR", -> sigma -> {"mean", "se", "median", "diverged"}, of a seed."""
    curves: dict[str, dict[float, dict[str, float | None]]] = {}
    for row in results:
        config, metrics = row["config"], row["metrics"]
        if config["experiment"] != PROFILE or config["noise"] != noise:
            continue
        if config["kind"] != "rules" and config["seed"] != seed:
            continue
        named = metrics if config["kind"] == "rules" else {f"{NAMED[config['kind']]} {config['layers']}": metrics}
        for name, of in named.items():
            each = [dict(zip(of, values, strict=True)) for values in zip(*of.values(), strict=True)]
            curves[name] = dict(zip(config["sigmas"], each, strict=True))
    return curves


def layered(layers: int) -> str:
    """Return "1 layer" or "3 layers"."""
    return f"{layers} layer{'' if layers == 1 else 's'}"


def too_few(results: Sequence[Row]) -> Finding | None:
    """Return the finding if there are no rows or only those of a smoke run, else None."""
    if not results:
        return untested("there are no rows yet")
    least = min((row["config"]["sequences"] for row in results if "sequences" in row["config"]), default=FEWEST)
    if least < FEWEST:
        return untested(f"{least} sequences to a row: seen to run, and a verdict wants {FEWEST:,} or more")
    return None


def _planned(setting: Setting) -> list[Chain]:
    budget, many = setting.budget, SEQUENCES[setting.budget]
    recipe = "paper" if budget in ("smoke", "paper") else "fast"
    if budget in ("smoke", "quick"):
        wanted: list[tuple[str, str, int, tuple[int, ...]]] = [(k, noise, 0, depths) for k, noise, depths in QUICK]
    else:
        depths = [(layers,) for layers in range(7, 0, -1)] if recipe == "paper" else [tuple(range(1, 8))]
        seeds = range(SEEDS if recipe == "paper" else 1)
        wanted = [(kind, noise, seed, one) for kind in SECONDS for noise in NAMES for seed in seeds for one in depths]
    return [Chain(k, noise, seed, recipe, many, str(setting.out), depths) for k, noise, seed, depths in wanted]


def _unit(chain: Chain, setting: Setting) -> Unit:
    wanted = [n for n in chain.depths if n in PROFILED.get((chain.kind, chain.noise), ())]
    extra = [{"experiment": PROFILE, **asdict(chain.cell(n)), **_levels(setting, chain.noise)} for n in wanted]
    configs = (*chain.missing(), *extra)
    done = tuple(n for n in chain.depths if setting.done(chain.config(n)))
    left = tuple(config for config in extra if not setting.done(config))
    work = Grown(Chain(**{**asdict(chain), "done": done}), left, setting.budget == "smoke")
    seconds = 4.0 + SECONDS[chain.kind] * sum(chain.depths) + 2.0 * len(extra)
    return Unit(rows, work, configs, 0.5 if work.smoke else seconds)


def _levels(setting: Setting, noise: str) -> dict[str, Any]:
    sigmas = explain_profiles.sigma_grid(Noise.parse(noise))
    if setting.budget in ("smoke", "quick"):
        sigmas = [sigma for sigma in sigmas if sigma == int(sigma) and sigma <= 6]
    return {"sigmas": sigmas, "sequences": PROFILE_SEQUENCES[setting.budget]}


def _few_steps(cell: Cell, previous: ICLTransformer | None) -> Trained:
    return paper(cell, lambda share: None, STEPS)


def _profile_model(model: ICLTransformer, config: Mapping[str, Any]) -> dict[str, list[float]]:
    return curve(profile(predictor(model), config["sigmas"], count=config["sequences"]))


def _profile_rules(config: Config) -> dict[str, dict[str, list[float]]]:
    noise, d, n = Noise.parse(config["noise"]), config["d"], config["n"]
    known = explain_profiles.baselines(noise, d, n, config["seed"])
    return {name: curve(profile(one, config["sigmas"], d, n, config["sequences"])) for name, one in known.items()}


def curve(scores: Sequence[Score]) -> dict[str, list[float]]:
    columns = {
        "mean": [one.sharp for one in scores],
        "se": [one.sharp_se for one in scores],
        "median": [one.median for one in scores],
        "diverged": [one.diverged for one in scores],
    }
    return {name: [_short(value) for value in values] for name, values in columns.items()}


def _short(value: float) -> float:
    return 0.0 if abs(value) < ROUNDED else rounded(value)
