"""`linnet recall text`: compare language models on repeated words, which can be looked up, and on the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from ...cli.common import FLAG, SEVERAL, deliver
from . import recall_show
from .options import given, worker_count
from .recall import OUT, watched

EPILOG = """\
A token is a hit when the bigram it completes occurred earlier in the window and
is rare in the training text: it can be looked up, and is hard to predict
otherwise. The loss on hits measures how well a model recalls, the loss on the
rest how well it knows the language (Arora et al. 2023, Zoology).

Small models, a short convolution and the mixer under test twice, are trained on
the same windows in the same order, and evaluated on the held-out end of the
text. softmax, Based and ReBased are compared seed by seed.

Budgets: smoke (seconds, only to check that it runs), quick (three seeds, a few
minutes for each of nine runs), hour (five seeds, two learning rates).

    linnet recall text
    linnet recall text --text my.txt other.txt --mixers softmax rebased delta
    linnet recall text --budget hour --workers 2
    linnet recall text --show runs/recall-text/books-quick --json

Texts by name: books, wikitext2 and tinyshakespeare from the data folder
(LINNET_DATA), shipped (Moby-Dick); auto is books, or shipped without them.
Interrupt or kill it at any time; the same command resumes.
"""

PARTS = (("hits", "hits"), ("rest", "the rest"))

text = App(name="text", help_format="plaintext", help_epilogue=EPILOG)


@text.default
def run_text(
    *,
    text: Annotated[list[str] | None, SEVERAL] = None,
    budget: str = "quick",
    mixers: Annotated[list[str] | None, SEVERAL] = None,
    rates: Annotated[list[float] | None, SEVERAL] = None,
    seeds: int | None = None,
    steps: int | None = None,
    vocab: int | None = None,
    rare: float | None = None,
    workers: str | None = None,
    out: Path | None = None,
    show: Path | None = None,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Run `linnet recall text`.

    Parameters
    ----------
    text
        Text files, or the name of a text; default: auto.
    budget
        smoke, quick or hour.
    mixers
        Which to compare; default: softmax based rebased.
    rates
        Learning rates, of which the best is used for each mixer; default: 0.003.
    seeds
        Runs of each mixer and rate; default: 3.
    steps
        Training steps of 16 windows of 256 tokens; default: 600.
    vocab
        Vocabulary size of the tokenizer trained on the text; 256 means bytes; default: 2048.
    rare
        Share of the training text whose bigrams count as rare; default: 0.5, 1 for all of them.
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core.
    out
        Folder for the rows; default: runs/recall-text/TEXT-BUDGET.
    show
        Print the contents of this folder and run nothing.
    json
        Print one JSON document, and nothing else, on standard output.
    """
    sweep = given(text=text, mixers=mixers, rates=rates, seeds=seeds)
    base = given(steps=steps, vocab_size=vocab, rare=rare)
    status, folder = 0, show
    if folder is None:
        status, folder = run(budget, base, sweep, out, worker_count(workers))
    elif sweep or base or out or workers:
        raise ValueError(f"--show prints the contents of {show}; leave the options of a run out")
    deliver(read(folder), json, recall_show.show_study)
    if status:
        sys.exit(status)


def run(budget: str, base: dict[str, Any], sweep: dict[str, Any], out: Path | None, workers: str) -> tuple[int, Path]:
    """Compute the missing rows; return the exit status (1 if a run failed, 130 after Ctrl-C) and the folder."""
    from ..recall.language import run_plan
    from ..recall.language_config import cost, make_plan

    plan = make_plan(budget, base, **sweep)
    folder = out or OUT.with_name("recall-text") / f"{plan.name.replace(' ', '-')}-{budget}"
    how: dict[str, Any] = {"title": "recall text", "cost": cost, "one_line": one_line}
    return watched(lambda hooks: run_plan(plan, folder, workers=workers, hooks=hooks), folder, **how), folder


def read(folder: Path) -> dict[str, Any]:
    from ..claims.rebased.recall_text import CLAIM
    from ..core.clock import read_timed
    from ..recall.document import study_document
    from ..recall.language_config import EXPERIMENT

    return study_document(CLAIM, *read_timed(folder, EXPERIMENT, "linnet recall text"))


def one_line(row: dict[str, Any]) -> str:
    config, metrics = row["config"], row["metrics"]
    losses = ", ".join(f"{_number(metrics[part]['loss'])} on {name}" for part, name in PARTS)
    return f"{config['mixer']}, rate {config['lr']:g}, seed {config['seed']}: {losses} in {row['seconds']:.0f} s"


def _number(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.3f}"
