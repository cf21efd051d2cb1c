"""`linnet recall`: how much of what it read a mixer with a given state can look up again, with seeds and intervals.

The work is in linnet/experiments/recall, the tables in recall_show.py; here are the options, the progress, the JSON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from ..reports.recall import html as page
from . import recall_show
from .bench import SEVERAL, Numbers
from .bench_show import deliver
from .rows_watcher import RowsWatcher

OUT = Path("runs") / "recall"
FLAG = Parameter(negative="")
QUICK: dict[str, Any] = {"mixers": ("softmax", "rebased", "elu"), "states": (3900,), "rates": (1e-2,), "seeds": 2}
LESSON = """\
A sequence gives key-value pairs, then asks for the value of each key again
(multi-query associative recall, MQAR). Softmax attention keeps every token and
can look anything up; a linear mixer keeps a state of fixed size, and this is
what the size, the kernel and the update rule are worth.

Each model has a short convolution and one layer of the mixer under test. Every
mixer sees the same sequences at the same seed. Accuracy is that of the last
step on sequences nothing was chosen by, with a 95 % bootstrap interval over the
seeds; the learning rate is the best of those given, by other sequences.

Examples

    linnet recall
        softmax, Based, ReBased, elu+1 and the delta rule at three state sizes,
        three learning rates, three seeds: minutes on two cores
    linnet recall --mixers rebased gla mamba2 --states 4000 12000 --seeds 5
        others, at states of so many bytes
    linnet recall --lengths 64 256 --pairs 16 --search 1
        rates chosen by runs of their own that stop early
    linnet recall --show runs/recall --html recall.html
        what is there, as a page with curves of accuracy against bytes
    linnet recall study length
        one question of the literature, with its verdict; --help lists them
    linnet recall text
        where language models differ: words that were said before, and the rest

Ctrl-C or a kill at any time; the same command goes on.
"""

recall = App(name="recall", help_format="plaintext", help_epilogue=LESSON)
recall.help = "Recall: which mixer, at which state size, remembers how much."
recall.command("linnet.cli.recall_study:study", name="study", help="One question of the literature, and its verdict.")
recall.command("linnet.cli.recall_text:text", name="text", help="Language models: what was said before, and the rest.")


@recall.default
def run_recall(
    *,
    mixers: Annotated[list[str] | None, SEVERAL] = None,
    states: Numbers = None,
    lengths: Numbers = None,
    pairs: Numbers = None,
    rates: Annotated[list[float] | None, SEVERAL] = None,
    seeds: int | None = None,
    search: int | None = None,
    steps: int | None = None,
    d_model: int | None = None,
    heads: int | None = None,
    vocab: int | None = None,
    task: str | None = None,
    filler: str | None = None,
    updates: int | None = None,
    first: str | None = None,
    workers: str | None = None,
    out: Path | None = None,
    quick: Annotated[bool, FLAG] = False,
    show: Path | None = None,
    html: Path | None = None,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
) -> None:
    """The options of `linnet recall`.

    Parameters
    ----------
    mixers
        Names of mixers; softmax based rebased elu delta when not given.
    states
        Bytes of state of the mixer under test, for one sequence; 1560 3900 11700 when not given. Softmax,
        short convolutions and RWKV have the state they have, and run once.
    lengths
        Tokens of a sequence, even numbers below the vocabulary; 64 when not given.
    pairs
        Key-value pairs of a sequence, at most a quarter of its length; 16 when not given.
    rates
        Learning rates; 0.003 0.01 0.03 when not given.
    seeds
        Runs of each mixer, size and rate; 3 when not given.
    search
        So many seeds first choose a rate in runs that stop at an accuracy of 0.99; the others then run
        at that rate only. 0 when not given: every rate with every seed.
    steps
        Training steps of 64 sequences; 600 when not given.
    d_model
        Width of the model; 64 when not given.
    heads
        Heads of the mixer; 1 when not given.
    vocab
        Number of tokens, half of them keys, half values; 256 when not given.
    task
        mqar, forgetting (keys written twice) or haystack (pairs inside filler); mqar when not given.
    filler
        zero, random (never a key or value of the sequence) or uniform (any token); zero when not given.
    updates
        Of the forgetting task: how many keys are written twice.
    first
        The layer before the mixer: conv, shift (the token before, nothing learned) or none.
    workers
        Processes, or ray for the cluster of RAY_ADDRESS or a local one; one per core when not given.
    out
        Folder for the rows; runs/recall when not given, runs/recall-quick with --quick.
    quick
        Softmax, ReBased and elu+1 at one state size, one rate, two seeds; other options still count.
    show
        Print what this folder has, and run nothing.
    html
        Also write a page with figures (needs the extra report).
    json
        One JSON document on standard output, and nothing else there.
    markdown
        The table for a page, in place of the one for the terminal.
    """
    if json and markdown:
        raise ValueError("--json and --markdown both want standard output; leave one out")
    base = {"steps": steps, "d_model": d_model, "n_heads": heads, "vocab_size": vocab, "task": task, "filler": filler}
    base |= {"updates": updates, "first": "" if first == "none" else first}
    asked: dict[str, Any] = {"mixers": mixers, "states": states, "lengths": lengths, "pairs": pairs, "rates": rates}
    asked = {name: tuple(value) for name, value in asked.items() if value is not None}
    asked |= {name: value for name, value in (("seeds", seeds), ("search", search)) if value is not None}
    given = {name: value for name, value in base.items() if value is not None}
    if show is not None:
        unused = [
            *asked,
            *given,
            *["out"] * (out is not None),
            *["workers"] * (workers is not None),
            *["quick"] * quick,
        ]
        if unused:
            raise ValueError(f"--show prints what {show} has; leave --{unused[0].replace('_', '-')} out")
        status = 0
    else:
        show = out or (OUT.with_name("recall-quick") if quick else OUT)
        status = run({**(QUICK if quick else {}), **asked}, given, show, workers or str(os.cpu_count() or 1))
    found = read(show)
    if html is not None:
        recall_show.write_page(page(found), html)
    if markdown:
        print(recall_show.markdown(found), end="")
    else:
        deliver(found, json, recall_show.show)
    if status:
        sys.exit(status)


def run(asked: dict[str, Any], given: dict[str, Any], out: Path, workers: str) -> int:
    """Make the rows that are missing; the exit status: 1 if a run failed, 130 if it was stopped by Ctrl-C."""
    from ..experiments.recall.config import RecallConfig
    from ..experiments.recall.sweep import Plan
    from ..experiments.recall.work import run_plan

    given = {"seq_len": asked.get("lengths", Plan.lengths)[0], "pairs": asked.get("pairs", Plan.pairs)[0], **given}
    plan = Plan(**asked, base=RecallConfig(**given))
    return watched(lambda hooks: run_plan(plan, out, workers=workers, hooks=hooks), out)


def watched(
    work: Callable[[Any], list[Any]],
    out: Path,
    title: str = "recall",
    cost: Callable[[dict[str, Any]], float] | None = None,
    one_line: Callable[[dict[str, Any]], str] = recall_show.one_line,
) -> int:
    """Run `work(hooks)` under a progress bar; the exit status: 1 if a run failed, 130 after Ctrl-C."""
    from ..experiments.recall import work as recall_work

    with RowsWatcher(Console(stderr=True), title, cost or recall_work.cost, one_line) as watcher:
        try:
            return 1 if work(recall_work.Hooks(watcher.start, watcher.row, watcher.failure)) else 0
        except KeyboardInterrupt:
            rows = out / recall_work.ROWS
            if not rows.is_file() or not rows.stat().st_size:
                sys.exit(130)
            return 130


def rows_in(folder: Path, experiment: str = "recall", command: str = "linnet recall") -> tuple[list[Any], float]:
    """The rows of a folder, and the minutes they took."""
    from ..experiments import read_rows
    from ..experiments.clock import minutes
    from ..experiments.recall.work import CLOCK, ROWS
    from ..experiments.results import check_experiment

    rows = read_rows(folder / ROWS)
    if not rows:
        raise ValueError(f"{folder} has no row yet; run {command} --out {folder} until the first")
    check_experiment(rows, experiment, folder)
    return rows, minutes(folder / CLOCK)


def read(folder: Path) -> dict[str, Any]:
    from ..experiments.recall.document import document

    return document(*rows_in(folder))
