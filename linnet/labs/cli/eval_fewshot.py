"""`linnet eval MODEL MODEL --fewshot`: compare models on questions after 0, 1 and 5 examples, and with chance.

    piqa   5 shots   100 items   chance 50.0   |   54.0 ±5.0 (55.0)   |   52.0 ±5.0 (51.0)

Accuracy in per cent, its standard error, in parentheses the accuracy of choices compared per letter.
linnet/labs/fewshot does the work; everything that can be wrong with a request is refused before the first model runs.
"""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ...cli.common import Bar
from ...cli.eval_options import FewShotOptions
from ...cli.loading import load_language
from ...errors import whole

LEGEND = "accuracy in % ± standard error (of choices compared per letter); ppl: perplexity of the word"


def ask(folders: list[Path], asked: FewShotOptions, *, json: bool) -> None:
    """Load the models, evaluate each, and print a table or JSON."""
    from .. import fewshot

    whole("limit", asked.limit, 0)
    whole("seed", asked.seed, 0)
    labels = _labels(folders)
    opened = [load_language(folder, quiet=json) for folder in folders]
    models = [fewshot.LinnetLM(model, tokenizer, context=asked.context) for model, tokenizer in opened]
    sets = fewshot.open_sets(asked.fewshot or tuple(fewshot.SETS), asked.shots, asked.limit or None)
    document: dict[str, Any] = {"limit": asked.limit, "seed": asked.seed, "models": [], "rows": []}
    for name, lm in zip(labels, models, strict=True):
        with Bar(f"asking {name}", console=Console(file=sys.stderr, highlight=False)) as bar:
            rows = fewshot.ask(lm, sets, asked.shots, asked.seed, on_progress=bar)
        document["models"].append(_described(name, lm))
        document["rows"] += [{"model": name, **row._asdict()} for row in rows]
    if json:
        print(json_format.dumps(document))
    else:
        show(document, Console(highlight=False))


def show(document: dict[str, Any], console: Console) -> None:
    """Print the table, one column per model, and one line about each model below it."""
    names = [model["name"] for model in document["models"]]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("set")
    for column in ("shots", "items", "chance", *names):
        table.add_column(column, justify="right", no_wrap=True)
    cells: dict[tuple[str, int, int, str], list[str]] = {}
    for row in document["rows"]:
        key = (row["task"], row["shots"], row["items"], "-" if not row["chance"] else f"{100 * row['chance']:.1f}")
        cells.setdefault(key, []).append(cell(row))
    for (task, shots, items, chance), numbers in cells.items():
        table.add_row(task, str(shots), f"{items:,}", chance, *numbers)
    console.print(table)
    console.print(LEGEND, soft_wrap=True)
    for model in document["models"]:
        rows = [row for row in document["rows"] if row["model"] == model["name"]]
        console.print(about(model, rows), soft_wrap=True, markup=False)


def cell(row: dict[str, Any]) -> str:
    """54.0 ±5.0 (55.0)"""
    text = f"{100 * row['accuracy']:.1f}"
    if row["stderr"] is not None:
        text += f" ±{100 * row['stderr']:.1f}"
    if row["accuracy_norm"] is not None:
        text += f" ({100 * row['accuracy_norm']:.1f})"
    if row["perplexity"] is not None:
        text += f" ppl {row['perplexity']:.3g}"
    return text


def about(model: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return one line: what the model is, and how many prompts had to be truncated."""
    text = f"{model['name']}: {model['mixer']}, {model['parameters']:,} parameters, {model['tokenizer']} tokens"
    cut, asked = sum(row["cut"] for row in rows), sum(row["items"] for row in rows)
    fit = f"{cut:,} of {asked:,} prompts were longer and lost their start" if cut else "all prompts fit"
    return f"{text}; reads {model['context']:,} tokens: {fit}"


def _described(name: str, lm: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mixer": "+".join(dict.fromkeys(lm.model.config.pattern)),
        "parameters": lm.model.parameter_count(),
        "tokenizer": lm.coder.name,
        "context": lm.max_length,
    }


def _labels(folders: list[Path]) -> list[str]:
    """Return the last part of each path, or whole paths where the last parts are not distinct."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    paths = [str(folder) for folder in folders]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"{twice} is given twice; accepted: each model once")
    return paths
