"""Write sets as lm-eval tasks: a YAML file with the prompt format and two JSONL files, items and examples, for each.

    write_tasks("tasks", ["piqa"])      tasks/piqa.yaml, piqa.items.jsonl, piqa.examples.jsonl

lm-eval's own command line takes them with `--include_path tasks --tasks piqa`. The YAML is JSON, which is also YAML.
Every path in it is absolute, because lm-eval resolves relative ones against the working directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...atomic import atomic
from ...data.files import PathLike
from ...lock import exclusive
from .sets import ItemSet, read_set
from .superglue import Item

Config = dict[str, Any]

# The prompt format of each kind of item, as fields of the item. A number in place of the text tells lm-eval to read the
# choices and score the target. It adds no delimiter before a target without choices.
ASKED: dict[str, Config] = {
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "text",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
    },
    "blank": {
        "output_type": "multiple_choice",
        "doc_to_text": "label",
        "doc_to_choice": "choices",
        "doc_to_target": "ending",
    },
    "word": {
        "output_type": "loglikelihood",
        "doc_to_text": "text",
        "doc_to_target": "{{' ' + word}}",
        "target_delimiter": "",
    },
}


def write_tasks(folder: PathLike, names: Sequence[str], data: PathLike | None = None) -> dict[str, Config]:
    """Write the tasks of these sets; return name -> content of its YAML. `data`: the sets' folder, as in `read_set`."""
    sets = [read_set(name, data) for name in names]
    return {each.name: write_task(Path(folder), each) for each in sets}


def write_task(folder: Path, given: ItemSet) -> Config:
    """Write the three files of one set atomically; the YAML comes last."""
    folder = folder.resolve()
    with exclusive(folder):
        files = {
            split: _write_lines(folder / f"{given.name}.{split}.jsonl", getattr(given, split))
            for split in ("items", "examples")
        }
        config = _config(given, files, folder)
        with atomic(folder / f"{given.name}.yaml") as file:
            file.write((json.dumps(config, indent=2) + "\n").encode())
    return config


def _config(given: ItemSet, files: dict[str, str], folder: Path) -> Config:
    metrics = ["acc", "acc_norm"] if given.normed else ["acc"]
    return {
        "task": given.name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
        "test_split": "items",
        "fewshot_split": "examples",
        "target_delimiter": " ",
        "fewshot_delimiter": "\n\n",
        **ASKED[given.kind],
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in metrics],
        "metadata": {"version": 1},
    }


def _write_lines(path: Path, items: list[Item]) -> str:
    with atomic(path) as file:
        file.write("".join(json.dumps(item) + "\n" for item in items).encode())
    return str(path)
