"""`linnet recall`: measure how much of its input a mixer with a given state size can look up again.

linnet/labs/recall does the work, recall_show.py prints; this file holds the options, the progress and the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli.common import FLAG, SEVERAL, Numbers, deliver
from ..report.recall import html as page
from . import recall_show
from .options import check_one_format, check_show_only, given, worker_count
from .rows_watcher import RowsWatcher

OUT = Path("runs") / "recall"
QUICK: dict[str, Any] = {"mixers": ("softmax", "rebased", "elu"), "states": (3900,), "rates": (1e-2,), "seeds": 2}
EPILOG = """\
A sequence lists key-value pairs, then asks for the value of each key again
(multi-query associative recall, MQAR). Softmax attention keeps every token and
can look anything up; a linear mixer keeps a state of fixed size. This command
measures how much the size, the kernel and the update rule matter.

Each model has a short convolution and one layer of the mixer under test. Every
mixer sees the same sequences at the same seed. Accuracy is measured after the
last step on held-out test sequences, with the 95 % interval of Student's t over
the seeds; the best of the given learning rates is chosen on validation sequences.

Examples

    linnet recall
        softmax, Based, ReBased, elu+1 and the delta rule at three state sizes,
        three learning rates, three seeds: minutes on two cores
    linnet recall --mixers rebased gla mamba2 --states 4000 12000 --seeds 5
        other mixers, at these state sizes in bytes
    linnet recall --lengths 64 256 --pairs 16 --search 1
        rates chosen in separate runs that stop early
    linnet recall --show runs/recall --html recall.html
        the results so far, as a page with curves of accuracy against bytes
    linnet recall study length
        one claim of the papers, with its outcome; without a name they are listed
    linnet recall text
        where language models differ: repeated words, and the rest

Interrupt or kill it at any time; the same command resumes.
"""

recall = App(name="recall", help_format="plaintext", help_epilogue=EPILOG)
recall.help = "Measure how much each mixer remembers at each state size."
recall.command(
    "linnet.labs.cli.recall_study:study", name="study", help="Test one claim of the papers: runs, rule and outcome."
)
recall.command(
    "linnet.labs.cli.recall_text:text", name="text", help="Compare language models on repeated words and on the rest."
)


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
    """Run `linnet recall`.

    Parameters
    ----------
    mixers
        Names of mixers; default: softmax based rebased elu delta.
    states
        State of the mixer under test in bytes per sequence; default: 1560 3900 11700. The state of softmax,
        short convolutions and RWKV cannot be chosen, so they run once.
    lengths
        Tokens of a sequence, even numbers below the vocabulary; default: 64.
    pairs
        Key-value pairs of a sequence, at most a quarter of its length; default: 16.
    rates
        Learning rates; default: 0.003 0.01 0.03.
    seeds
        Runs of each mixer, size and rate; default: 3.
    search
        This many seeds first choose a rate in runs that stop at an accuracy of 0.99; the others then run
        at that rate only. Default: 0, every rate with every seed.
    steps
        Training steps of 64 sequences; default: 600.
    d_model
        Width of the model; default: 64.
    heads
        Heads of the mixer; default: 1.
    vocab
        Number of tokens, half of them keys, half values; default: 256.
    task
        mqar, forgetting (keys written twice) or haystack (pairs inside filler); default: mqar.
    filler
        zero, random (never a key or value of the sequence) or uniform (any token); default: zero.
    updates
        Number of keys that the forgetting task writes twice.
    first
        The layer before the mixer: conv, shift (the previous token, no weights) or none.
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core.
    out
        Folder for the rows; default: runs/recall, runs/recall-quick with --quick.
    quick
        Softmax, ReBased and elu+1 at one state size, one rate, two seeds; other options still apply.
    show
        Print the contents of this folder and run nothing.
    html
        Also write a page with figures.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print the table as Markdown.
    """
    check_one_format(json, markdown)
    sweep = given(mixers=mixers, states=states, lengths=lengths, pairs=pairs, rates=rates, seeds=seeds, search=search)
    base = given(steps=steps, d_model=d_model, n_heads=heads, vocab_size=vocab, task=task, filler=filler)
    base |= given(updates=updates, first="" if first == "none" else first)
    if show is not None:
        check_show_only(show, [*sweep, *base, *given(out=out, workers=workers), *["quick"] * quick])
        status = 0
    else:
        show = out or (OUT.with_name("recall-quick") if quick else OUT)
        status = run({**(QUICK if quick else {}), **sweep}, base, show, worker_count(workers))
    document = read(show)
    if html is not None:
        recall_show.write_page(page(document), html)
    if markdown:
        print(recall_show.markdown(document), end="")
    else:
        deliver(document, json, recall_show.show)
    if status:
        sys.exit(status)


def run(sweep: dict[str, Any], base: dict[str, Any], out: Path, workers: str) -> int:
    """Compute the missing rows; return the exit status: 1 if a run failed, 130 if Ctrl-C stopped it."""
    from ..recall.config import RecallConfig
    from ..recall.sweep import Plan
    from ..recall.work import run_plan

    base = {"seq_len": sweep.get("lengths", Plan.lengths)[0], "pairs": sweep.get("pairs", Plan.pairs)[0], **base}
    plan = Plan(**sweep, base=RecallConfig(**base))
    return watched(lambda hooks: run_plan(plan, out, workers=workers, hooks=hooks), out)


def watched(
    work: Callable[[Any], list[Any]],
    out: Path,
    title: str = "recall",
    cost: Callable[[dict[str, Any]], float] | None = None,
    one_line: Callable[[dict[str, Any]], str] = recall_show.one_line,
) -> int:
    """Run `work(hooks)` under a progress bar; return the exit status: 1 if a run failed, 130 after Ctrl-C."""
    from ..core.results import ROWS
    from ..core.runner import Hooks
    from ..recall.work import cost as recall_cost

    with RowsWatcher(Console(stderr=True), title, cost or recall_cost, one_line) as watcher:
        try:
            return 1 if work(Hooks(watcher.start, watcher.row, watcher.failure)) else 0
        except KeyboardInterrupt:
            rows = out / ROWS
            if not rows.is_file() or not rows.stat().st_size:
                sys.exit(130)
            return 130


def read(folder: Path) -> dict[str, Any]:
    from ..core.clock import read_timed
    from ..recall.document import document

    return document(*read_timed(folder, "recall", "linnet recall"))
