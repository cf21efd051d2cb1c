"""Few-shot evaluation of language models with lm-eval, on data sets in a local folder: no hub, no network.

    rows = linnet.labs.fewshot.evaluate(model, tokenizer, ["piqa", "lambada"], shots=(0, 1, 5), limit=200)
    linnet.labs.fewshot.write_tasks("tasks", ["piqa"])             files for lm-eval's own command line
    linnet.labs.fewshot.LinnetLM(model, tokenizer)                 any task of lm-eval, with lm_eval.simple_evaluate

The only folder that imports `lm_eval`, which is optional (pip install linnet[eval]). The names below load on first use,
because reading sets and writing tasks does not need it. A process that imports this folder does not contact the Hugging
Face hub, unless HF_HUB_OFFLINE and HF_DATASETS_OFFLINE are set to 0.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .adapter import LinnetLM as LinnetLM
    from .run import Row as Row
    from .run import ask as ask
    from .run import evaluate as evaluate
    from .run import open_sets as open_sets
    from .sets import SETS as SETS
    from .sets import ItemSet as ItemSet
    from .sets import read_set as read_set
    from .tasks import write_tasks as write_tasks

_HOMES = {
    "ItemSet": ".sets",
    "LinnetLM": ".adapter",
    "Row": ".run",
    "SETS": ".sets",
    "ask": ".run",
    "evaluate": ".run",
    "open_sets": ".run",
    "read_set": ".sets",
    "write_tasks": ".tasks",
}
__all__ = ["SETS", "ItemSet", "LinnetLM", "Row", "ask", "evaluate", "open_sets", "read_set", "write_tasks"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # both are read when lm-eval imports the package `datasets`
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "lm_eval":
            raise
        raise ImportError(
            "few-shot evaluation needs the package lm-eval, which is not installed; run pip install 'linnet[eval]'"
        ) from error
    globals()[name] = value  # later lookups skip this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
