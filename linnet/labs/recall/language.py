"""C12: compare language models on real text, with their loss split into recall hits and the rest.

    hits   targets whose bigram occurred earlier in the window and is rare in training (tasks/recall_hits.py)
    loss   mean nats per target;   perplexity  e^loss;   bits  loss / ln 2;   of hits, of the rest and of all

Some held-out windows choose a learning rate, the results come from others. The verdict is in language_verdict.py.
Arora et al. 2023, arXiv:2312.04927; Aksenov et al. 2024, arXiv:2402.10644, section 5.3, where a hit is any token that
occurred before: `rare` = 1, every repeated bigram, comes close to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, log, nan
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...data import TextSource
from ...errors import StateError
from ...json_file import finite_or_none
from ...models import LanguageModel
from ...targets import IGNORE
from ...train import Event, TrainingDiverged, fit
from ..core.clock import CLOCK, Clock, run_timed
from ..core.results import ROWS, Row, Store, check_experiment, make_row
from ..core.runner import Failure, Hooks, check_workers
from .language_config import EXPERIMENT, Plan, TextConfig, Unit
from .language_table import BATCH, PARTS, Losses, by_table
from .language_text import prepared
from .tasks import Bigrams, recall_hits

FOLDER = "text"  # of the tokenizer and the tokens, next to the rows
POINTS, WATCHED = 8, 16  # of a training curve, by which convergence is judged: how many, and windows of each
Curve = list[tuple[int, float]]  # (step, mean nats)


def run(unit: Unit) -> Row:
    """Train one model, and split its loss on the held-out windows."""
    began = monotonic()
    config, text = unit.config, unit.text
    torch.manual_seed(config.seed)
    model = LanguageModel(config.model(text.tokenizer().vocab_size))
    held, curve = text.windows("valid", config.seq_len), Curve()
    ending = train(model, text.windows("train", config.seq_len), config, held, curve)
    seconds = monotonic() - began
    bigrams = text.bigrams()
    most = bigrams.most(config.rare)
    first, last = config.chosen_on, min(held.length, config.chosen_on + config.windows)
    metrics: dict[str, Any] = measured(evaluate(model, held, bigrams, most, range(first, last)))
    chosen = measured(evaluate(model, held, bigrams, most, range(first)))["all"]["loss"]
    metrics |= {"chosen_by": -chosen, "most": most, "ending": ending, "state_bytes": model.state_bytes(config.seq_len)}
    metrics |= {"table": finite_or_none(measured(by_table(text, config))), "curve": finite_or_none(curve)}
    return make_row(config.to_dict(), metrics, seconds, {"parameters": model.parameter_count()})


def rows_of(unit: Unit) -> Iterator[Row]:
    """Yield the row of a unit; the runner calls this."""
    yield run(unit)


def train(
    model: LanguageModel,
    source: TextSource,
    config: TextConfig,
    held: TextSource | None = None,
    curve: Curve | None = None,
) -> str:
    """Train in place; return how it ended: "" or "diverged". curve: gets the loss on windows that choose a rate."""

    def watch(event: Event) -> None:
        if event.kind == "eval" and curve is not None:
            curve.append((event.step, event.values["loss"]))

    how = config.training()
    if held is not None:
        how = replace(how, eval_every=max(1, config.steps // POINTS), eval_rows=min(WATCHED, config.chosen_on))
    try:
        result = fit(model, source, held, how, on_event=watch)
    except TrainingDiverged:
        return "diverged"
    if result.stopped:  # half a run is not a row
        raise KeyboardInterrupt(result.stopped)
    return ""


@torch.no_grad()
def evaluate(model: LanguageModel, windows: TextSource, bigrams: Bigrams, most: int, rows: range) -> Losses:
    """Return nats and number of the targets that are hits, and of the others, over some rows of the windows."""
    model.eval()
    nats, counts = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0)
    for first in range(rows.start, rows.stop, BATCH):
        batch = windows.batch(range(first, min(first + BATCH, rows.stop)))
        hits = recall_hits(batch["tokens"], batch["targets"], bigrams, most)
        for part, of_it in zip(PARTS, (hits, ~hits), strict=True):
            total, count = model.loss(only(batch, of_it))
            nats[part], counts[part] = nats[part] + float(total), counts[part] + int(count)
    return {part: (nats[part], counts[part]) for part in PARTS}


def only(batch: dict[str, Tensor], of_it: Tensor) -> dict[str, Tensor]:
    """Return the batch with only the targets where of_it [B,T] is True."""
    return {"tokens": batch["tokens"], "targets": batch["targets"].masked_fill(~of_it, IGNORE)}


def measured(losses: Losses) -> dict[str, dict[str, float]]:
    """Return loss, perplexity and bits of each part and of all; NaN for a part without targets."""
    nats, counts = zip(*losses.values(), strict=True)
    metrics = {}
    for part, (total, count) in {**losses, "all": (sum(nats), sum(counts))}.items():
        loss = total / count if count else nan
        perplexity = exp(min(loss, 700.0))  # e^710 overflows
        metrics[part] = {"loss": loss, "perplexity": perplexity, "bits": loss / log(2), "targets": count}
    return metrics


def run_plan(plan: Plan, out: Path, *, workers: int | str = 1, hooks: Hooks | None = None) -> list[Failure]:
    """Append every missing row to OUT/rows.jsonl and return the runs that failed; a killed run resumes."""
    workers, hooks = check_workers(workers), hooks or Hooks()
    with Store(out / ROWS) as store:
        check_experiment(store.rows(), EXPERIMENT, out)
        units = plan.units(prepared(plan.text, plan.base.vocab_size, out / FOLDER))
        check_settings(store.rows(), units[0].config, out)
        units = [unit for unit in units if not store.has(unit.config.to_dict())]
        hooks.start([config for unit in units for config in unit.missing()])
        return run_timed(units, rows_of, store, Clock(out / CLOCK, workers), hooks)


def check_settings(rows: list[Row], config: TextConfig, folder: Path) -> None:
    """Raise StateError unless the rows to compute can be compared with the existing ones."""
    for row in rows:
        there = TextConfig.from_dict(row["config"]).settings()
        for name, value in config.settings().items():
            if there[name] != value:
                raise StateError(
                    f"{folder} holds rows with {name} {there[name]!r}, and {value!r} is requested; name another folder"
                )
