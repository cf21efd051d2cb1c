"""Evaluate a language model on sets of questions after zero, one or five examples; return rows of accuracies.

    accuracy = mean over items of 1[the right choice is the most likely one],      stderr = std / sqrt(items)

`norm` divides a choice's log-probability by its number of letters. Each item has its own examples, drawn by the seed:
they are the same for every model, so two models can be compared item by item.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate as run_tasks

from ...data import Tokenizer
from ...data.files import PathLike
from ...models import LanguageModel
from .adapter import LinnetLM, OnProgress
from .sets import SETS, ItemSet, read_set
from .tasks import write_task


class Row(NamedTuple):
    """One set after one number of examples."""

    task: str
    shots: int
    items: int
    chance: float
    accuracy: float
    stderr: float | None  # None for a single item
    accuracy_norm: float | None  # for sets where it is customary
    stderr_norm: float | None
    perplexity: float | None  # of the word, for sets without choices
    cut: int  # items whose prompt was truncated


def evaluate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    tasks: Sequence[str] = tuple(SETS),
    shots: Sequence[int] = (0, 1, 5),
    limit: int | None = None,
    seed: int = 0,
    *,
    data: PathLike | None = None,
    context: int | None = None,
    batch_tokens: int = 4096,
    on_progress: OnProgress | None = None,
) -> list[Row]:
    """Return rows for each set after each number of examples, in that order.

    tasks        names of SETS
    limit        items of each set, from the first; default: all
    data         the folder with the sets' files; default: the data folder
    context      maximum number of tokens the model reads; default: its training length
    on_progress  called with (tokens read, total)
    """
    lm = LinnetLM(model, tokenizer, context=context, batch_tokens=batch_tokens)
    return ask(lm, open_sets(tasks, shots, limit, data=data), shots, seed, on_progress=on_progress)


def open_sets(
    tasks: Sequence[str], shots: Sequence[int], limit: int | None = None, *, data: PathLike | None = None
) -> list[ItemSet]:
    """Return the sets by these names, with at most `limit` items; raise ValueError if there are too few examples."""
    if not tasks or not shots:
        raise ValueError(
            f"there are {len(tasks)} sets and {len(shots)} numbers of examples; accepted: one or more each"
        )
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; accepted: 1 or more, or None for all items")
    sets = [read_set(name, data).first(limit) for name in dict.fromkeys(tasks)]
    most = min(len(given.examples) for given in sets)
    for n in shots:
        if not 0 <= n <= most:
            raise ValueError(f"shots is {n}; accepted: 0 to {most}, the number of examples")
    return sets


def ask(
    lm: LinnetLM, sets: Sequence[ItemSet], shots: Sequence[int], seed: int = 0, on_progress: OnProgress | None = None
) -> list[Row]:
    """Return the rows of a wrapped model on open sets; see `evaluate`."""
    if seed < 0:
        raise ValueError(f"seed is {seed}; accepted: 0 or more")
    lm.on_progress = None if on_progress is None else _with_stderr(on_progress)
    pairs = [(given, n) for given in sets for n in dict.fromkeys(shots)]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, redirect_stderr(StringIO()):  # bars and remarks
        configs = {given.name: write_task(Path(folder), given) for given in sets}
        loaded = {}
        for given, n in pairs:
            name = f"{given.name} {n}"
            loaded[name] = ConfigurableTask(config={**configs[given.name], "task": name, "num_fewshot": n})
            loaded[name].set_fewshot_seed(seed=seed)
        samples = run_tasks(lm=lm, task_dict=loaded, bootstrap_iters=0, log_samples=True)["samples"]
    return [_row(given, n, samples[f"{given.name} {n}"], lm.cut) for given, n in pairs]


def _with_stderr(on_progress: OnProgress) -> OnProgress:
    """Return `on_progress` bound to the present standard error; only the output of lm-eval is suppressed."""
    stderr = sys.stderr

    def report(done: int, total: int) -> None:
        with redirect_stderr(stderr):
            on_progress(done, total)

    return report


def _row(given: ItemSet, shots: int, samples: list[dict[str, Any]], cut: set[str]) -> Row:
    accuracy, stderr = _mean([sample["acc"] for sample in samples])
    norm, stderr_norm = _mean([sample["acc_norm"] for sample in samples]) if given.normed else (None, None)
    perplexity = None
    if given.kind == "word":
        nats = [-sample["filtered_resps"][0][0] for sample in samples]
        perplexity = math.exp(min(sum(nats) / len(nats), 700.0))
    lost = sum(any(arguments[0] in cut for arguments in sample["arguments"]) for sample in samples)
    return Row(
        given.name, shots, len(samples), given.chance, accuracy, stderr, norm, stderr_norm, perplexity, lost
    )  # fmt: skip


def _mean(values: list[float]) -> tuple[float, float | None]:
    """Return the mean of ones and zeros and its standard error."""
    mean, n = sum(values) / len(values), len(values)
    return mean, math.sqrt(mean * (1 - mean) / (n - 1)) if n > 1 else None
