"""`linnet recall text`: where language models differ: on words that were said before, and on the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from . import recall_show
from .bench import SEVERAL
from .bench_show import deliver
from .recall import OUT, rows_in, watched

LESSON = """\
A token is a hit when the pair of it and the token before stood earlier in the
window and is rare in the training text: it could be looked up, and hardly be
known otherwise. The loss on hits tells how well a model recalls, the loss on
the rest how well it knows the language (Arora et al. 2023, Zoology).

Small models, a short convolution and the mixer under test twice, are trained on
the same windows in the same order, and measured on the end of the text, which
they have not seen. softmax, Based and ReBased are compared seed by seed.

Budgets: smoke (seconds, only to see that it runs), quick (three seeds, a few
minutes for each of nine runs), hour (five seeds, two learning rates).

    linnet recall text
    linnet recall text --text my.txt other.txt --mixers softmax rebased delta
    linnet recall text --budget hour --workers 2
    linnet recall text --show runs/recall-text/books-quick --json

Texts by name: books, wikitext2 and tinyshakespeare from the data folder
(LINNET_DATA), shipped (Moby-Dick); auto is books, or shipped without them.
Ctrl-C or a kill at any time; the same command goes on.
"""

PARTS = (("hits", "hits"), ("rest", "the rest"))

text = App(name="text", help_format="plaintext", help_epilogue=LESSON)


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
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The options of `linnet recall text`.

    Parameters
    ----------
    text
        Text files, or the name of a text; auto when not given.
    budget
        smoke, quick or hour.
    mixers
        Which to compare; softmax based rebased when not given.
    rates
        Learning rates, of which each mixer gets its best; 0.003 when not given.
    seeds
        Runs of each mixer and rate; 3 when not given.
    steps
        Training steps of 16 windows of 256 tokens; 600 when not given.
    vocab
        Tokens of the tokenizer that is learned on the text; 256 is bytes; 2048 when not given.
    rare
        Share of the training text whose bigrams count as rare; 0.5 when not given, 1 for all of them.
    workers
        Processes, or ray for the cluster of RAY_ADDRESS or a local one; one per core when not given.
    out
        Folder for the rows; runs/recall-text/TEXT-BUDGET when not given.
    show
        Print what this folder has, and run nothing.
    json
        One JSON document on standard output, and nothing else there.
    """
    lists: dict[str, Any] = {"text": text, "mixers": mixers, "rates": rates}
    asked: dict[str, Any] = {name: tuple(value) for name, value in lists.items() if value is not None}
    asked |= {} if seeds is None else {"seeds": seeds}
    sizes = {"steps": steps, "vocab_size": vocab, "rare": rare}
    base = {name: value for name, value in sizes.items() if value is not None}
    status, folder = 0, show
    if folder is None:
        status, folder = run(budget, base, asked, out, workers or str(os.cpu_count() or 1))
    elif asked or base or out or workers:
        raise ValueError(f"--show prints what {show} has; leave the options of a run out")
    deliver(read(folder), json, recall_show.show_study)
    if status:
        sys.exit(status)


def run(budget: str, base: dict[str, Any], asked: dict[str, Any], out: Path | None, workers: str) -> tuple[int, Path]:
    """Make the rows that are missing; the exit status (1 if a run failed, 130 after Ctrl-C) and where the rows are."""
    from ..experiments.recall.language import run_plan
    from ..experiments.recall.language_config import cost, make_plan

    plan = make_plan(budget, base, **asked)
    folder = out or OUT.with_name("recall-text") / f"{plan.name.replace(' ', '-')}-{budget}"
    how: dict[str, Any] = {"title": "recall text", "cost": cost, "one_line": one_line}
    return watched(lambda hooks: run_plan(plan, folder, workers=workers, hooks=hooks), folder, **how), folder


def read(folder: Path) -> dict[str, Any]:
    from ..experiments.recall.language_config import EXPERIMENT
    from ..experiments.recall.language_verdict import document

    return document(*rows_in(folder, EXPERIMENT, "linnet recall text"))


def one_line(row: dict[str, Any]) -> str:
    config, metrics = row["config"], row["metrics"]
    losses = ", ".join(f"{_number(metrics[part]['loss'])} on {name}" for part, name in PARTS)
    return f"{config['mixer']}, rate {config['lr']:g}, seed {config['seed']}: {losses} in {row['seconds']:.0f} s"


def _number(loss: float | None) -> str:
    return "no number" if loss is None else f"{loss:.3f}"
