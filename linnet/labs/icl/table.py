"""The paper's Table 1 as units of work: a chain of models from shallow to deep, and the baselines of a problem.

    OUT/rows.jsonl     a row for every model and every baseline        OUT/clock.json     wall clock of all runs
    OUT/models/        <kind>-<noise>-L<layers>-s<seed>.safetensors, saved before its row is appended

Vladymyrov et al. 2024 (arXiv:2402.14180): FULL, DIAG and GD++ at 1 to 7 layers on 10 distributions of noise. The fast
recipe grows DIAG and GD++ from the model with one layer less, so a chain is one kind, one noise and one seed; with the
paper's recipe every model is its own chain. A killed chain resumes at its first model without a row, from the saved
model before it, and computes the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ...atomic import remove_torn
from ...errors import StateError
from ...regress.gram import Gram
from ...regress.model import ICLTransformer
from ..core.clock import CLOCK, Clock, run_timed
from ..core.results import ROWS, Row, Store, check_experiment, make_row
from ..core.runner import Failure, Hooks, check_workers
from . import baselines
from .evaluate import CHUNK, TEST_SEED, Predict, evaluate_model, measure
from .noise import Noise
from .recipes import Cell, Trained, train_cell
from .regression import Regression
from .table_units import EXPERIMENT, Chain, Plan, Rules, Unit, make_units

MODELS = "models"
GD_STEPS = 50  # per solve, and GD-AdaRR has two: "about 100 steps" in the paper
Train = Callable[[Cell, ICLTransformer | None], Trained]


def run_table(
    plan: Plan, out: Path, *, workers: int | str = 1, train: Train = train_cell, hooks: Hooks | None = None
) -> list[Failure]:
    """Compute every row of the plan that OUT does not have yet; return the units that failed."""
    workers, hooks = check_workers(workers), hooks or Hooks()
    with Store(out / ROWS) as store:
        check_rows(store.rows(), plan, out)
        clock = Clock(out / CLOCK, workers)
        models = out / MODELS
        models.mkdir(exist_ok=True)
        remove_torn(models)
        units = make_units(plan, out, store)
        hooks.start(units)
        return run_timed(units, partial(run_unit, train=train), store, clock, hooks)


def check_rows(rows: Sequence[Row], plan: Plan, out: Path) -> None:
    """Refuse rows of OUT of another experiment, recipe or number of test sequences."""
    check_experiment(rows, EXPERIMENT, out)
    for row in rows:
        for name, value in (("recipe", plan.recipe), ("sequences", plan.sequences)):
            other = row["config"].get(name, value)  # baselines have no recipe
            if other != value:
                raise StateError(
                    f"{out} holds rows of {name} {other}, and {value} is requested; name another folder with --out, "
                    f"or request {name} {other}"
                )


def run_unit(unit: Unit, train: Train = train_cell) -> Iterator[Row]:
    """Yield the rows of a chain or of the baselines of a noise."""
    return _chain_rows(unit, train) if isinstance(unit, Chain) else _baseline_rows(unit)


def _chain_rows(chain: Chain, train: Train) -> Iterator[Row]:
    previous = None
    for layers in chain.depths:
        path = model_path(Path(chain.out), chain.cell(layers))
        if layers in chain.done and path.is_file():
            previous = saved_model(path, chain.kind, layers)
            continue
        began = perf_counter()
        trained = train(chain.cell(layers), previous)
        trained.model.save(path)
        previous = trained.model
        if layers not in chain.done:
            info = {**trained.info, "train_seconds": round(perf_counter() - began, 3)}
            score = evaluate_model(trained.model, Noise.parse(chain.noise), chain.sequences)
            yield make_row(chain.config(layers), asdict(score), perf_counter() - began, info)


def model_path(out: Path, cell: Cell) -> Path:
    noise = cell.noise.strip("{}")
    return out / MODELS / f"{cell.kind}-{noise}-L{cell.layers}-s{cell.seed}.safetensors"


def saved_model(path: Path, kind: str, layers: int) -> ICLTransformer:
    model = ICLTransformer.load(path)
    if (model.config.kind, model.config.layers) != (kind, layers):
        held = f"a {model.config.kind} model of {model.config.layers} layers"
        raise StateError(f"{path} holds {held}, not {kind} of {layers}; delete it, and it is trained again")
    return model


def _baseline_rows(rules: Rules) -> Iterator[Row]:
    for name in rules.names:
        began = perf_counter()
        predict, info = _rule(name, rules.problem, rules.sequences)
        score = measure(predict, rules.problem, rules.sequences)
        yield make_row(rules.config(name), asdict(score), perf_counter() - began, info)


def _rule(name: str, problem: Regression, sequences: int) -> tuple[Predict, dict[str, Any]]:
    """Return a baseline from sums to w, and its settings; TunedRR is tuned on the test sequences, as in the paper."""
    if name == "tuned_rr":
        c, cap = baselines.tune(*sums_to_tune_on(problem, sequences), problem.noise)
        return lambda gram: baselines.tuned_rr(gram, c, cap), {"c": c, "cap": cap}
    if name == "gd_ada_rr":
        return lambda gram: baselines.gd_ada_rr(gram, GD_STEPS), {"steps": GD_STEPS}
    rule = getattr(baselines, name)
    if name in ("const_rr", "bayes"):
        return lambda gram: rule(gram, problem.noise), {}
    return rule, {}


def sums_to_tune_on(problem: Regression, sequences: int) -> tuple[Gram, Tensor]:
    """Return the sums and the weights [B,d] of the sequences that `measure` draws."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    sizes = [min(CHUNK, sequences - start) for start in range(0, sequences, CHUNK)]
    parts = [(batch.gram, batch.weights) for batch in (problem.sample(size, generator) for size in sizes)]
    gram = Gram(*(torch.cat(one) for one in zip(*(gram for gram, _ in parts), strict=True)))
    return gram, torch.cat([weights for _, weights in parts])
