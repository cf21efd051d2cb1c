"""The paper's Table 1 as units of work: a chain of models from shallow to deep, and the baselines of a problem.

    OUT/rows.jsonl     a row for every model and every baseline        OUT/clock.json     wall clock, all runs together
    OUT/models/        <kind>-<noise>-L<layers>-s<seed>.safetensors, saved before its row is appended

Vladymyrov et al. 2024 (arXiv:2402.14180): FULL, DIAG and GD++ at 1 to 7 layers on 10 distributions of noise. The fast
recipe grows DIAG and GD++ from the model a layer shallower, so a chain is one kind, one noise and one seed; with the
paper's recipe every model is a chain by itself. A chain that was killed begins again at its first model without a row,
from the saved model before it, and finds the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..atomic import remove_torn
from ..errors import StateError
from ..icl import baselines
from ..icl.evaluate import CHUNK, TEST_SEED, Predict, evaluate_model, measure
from ..icl.recipes import Cell, Trained, train_cell
from ..models.icl import ICLTransformer
from ..tasks import Gram, Noise, Regression
from .clock import Clock
from .icl_units import EXPERIMENT, GROWN, Chain, Plan, Rules, Unit, make_units
from .results import Row, Store, check_experiment, make_row
from .runner import Failure, check_workers, run_all

ROWS, CLOCK, MODELS = "rows.jsonl", "clock.json", "models"
GD_STEPS = 50  # a solve, and GD-AdaRR has two: "about 100 steps" in the paper
Train = Callable[[Cell, ICLTransformer | None], Trained]


def run_table(
    plan: Plan,
    out: Path,
    *,
    workers: int | str = 1,
    train: Train = train_cell,
    on_start: Callable[[list[Unit]], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
    on_failure: Callable[[Failure], None] | None = None,
) -> list[Failure]:
    """Every row of the plan that OUT does not have yet; returns the units that failed."""
    workers = check_workers(workers)
    with Store(out / ROWS) as store:
        check_rows(store.rows(), plan, out)
        clock = Clock(out / CLOCK, workers)
        models = out / MODELS
        models.mkdir(exist_ok=True)
        remove_torn(models)
        units = make_units(plan, out, store)
        if on_start is not None:
            on_start(units)

        def keep(row: Row) -> None:
            clock.tick()
            if on_row is not None:
                on_row(row)

        function = partial(run_unit, train=train)
        return run_all(units, function, store, workers=workers, on_row=keep, on_failure=on_failure)


def check_rows(rows: Sequence[Row], plan: Plan, out: Path) -> None:
    """The rows of OUT must belong to this experiment, this recipe and this number of test sequences."""
    check_experiment(rows, EXPERIMENT, out)
    for row in rows:
        for name, value in (("recipe", plan.recipe), ("sequences", plan.sequences)):
            found = row["config"].get(name, value)  # baselines have no recipe
            if found != value:
                raise StateError(
                    f"{out} holds rows of {name} {found}, and {value} is asked for; name another folder with --out, "
                    f"or ask for {name} {found}"
                )


def run_unit(unit: Unit, train: Train = train_cell) -> Iterator[Row]:
    """The rows of a chain or of the baselines of a noise."""
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


def grow(cell: Cell, report: Callable[[float], None] | None = None) -> Trained:
    """One model; with the fast recipe DIAG and GD++ from one layer up. `report` hears the share that is done."""
    grown = cell.recipe == "fast" and cell.kind in GROWN
    cells = [replace(cell, layers=k) for k in range(1, cell.layers + 1)] if grown else [cell]
    total, done, previous = sum(one.layers for one in cells), 0, None
    for one in cells:
        share = report and partial(_share, report, done / total, one.layers / total)
        trained = train_cell(one, previous, share)
        previous, done = trained.model, done + one.layers
    return trained


def _share(report: Callable[[float], None], before: float, part: float, share: float) -> None:
    report(before + part * share)


def model_path(out: Path, cell: Cell) -> Path:
    noise = cell.noise.strip("{}")
    return out / MODELS / f"{cell.kind}-{noise}-L{cell.layers}-s{cell.seed}.safetensors"


def saved_model(path: Path, kind: str, layers: int) -> ICLTransformer:
    model = ICLTransformer.load(path)
    if (model.config.kind, model.config.layers) != (kind, layers):
        found = f"a {model.config.kind} model of {model.config.layers} layers"
        raise StateError(f"{path} holds {found}, not {kind} of {layers}; delete it, and it is trained again")
    return model


def _baseline_rows(rules: Rules) -> Iterator[Row]:
    for name in rules.names:
        began = perf_counter()
        predict, info = _rule(name, rules.problem, rules.sequences)
        score = measure(predict, rules.problem, rules.sequences)
        yield make_row(rules.config(name), asdict(score), perf_counter() - began, info)


def _rule(name: str, problem: Regression, sequences: int) -> tuple[Predict, dict[str, Any]]:
    """A baseline from sums to w, and its settings; TunedRR is tuned on the test sequences, as the paper does."""
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
    """The sums and the weights [B,d] of the sequences that `measure` draws."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    sizes = [min(CHUNK, sequences - start) for start in range(0, sequences, CHUNK)]
    parts = [(batch.gram, batch.weights) for batch in (problem.sample(size, generator) for size in sizes)]
    gram = Gram(*(torch.cat(one) for one in zip(*(gram for gram, _ in parts), strict=True)))
    return gram, torch.cat([weights for _, weights in parts])
