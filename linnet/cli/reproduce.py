"""`linnet reproduce`: the claims of three papers checked on this machine, a scoreboard, and one page about it.

The claims and the work are in linnet/experiments/claims, the page in linnet/reports/reproduce.py; here are the options.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from ..errors import StateError
from ..lock import exclusive
from ..reports.reproduce import html
from . import reproduce_show
from .bench_show import deliver

OUT = Path("runs")
PAGE = "report.html"
FLAG = Parameter(negative="")
LESSON = """\
Each claim is one thing a paper says, the work that tests it here, and a rule
that turns the rows into a verdict: confirmed, refuted, unclear, or not testable
at this budget. Numbers come with intervals, and the paper's stand beside ours.

    rnn       Transformers are RNNs: exactness, speed, memory, generation at the
              paper's full sizes, copying, digits, speech
    rebased   ReBased and Based: recall at equal bytes, length, ablation, IoU,
              text, few-shot
    icl       Versatile in-context learners: the table, theorems, adaptivity
    open      what reviews ask: kernels by task, short sequences, other kinds of
              attention, random features

Budgets: quick (10 minutes on two cores for everything), hour (at most 90),
paper (the published sizes, for a cluster: --workers ray), smoke (a minute, only
to see that everything runs; its verdicts say nothing).

Examples

    linnet reproduce
        everything; runs/reproduce-quick/report.html is the page
    linnet reproduce icl copy T7
        a paper, a claim by name, a claim by number
    linnet reproduce --list
        what there is
    linnet reproduce all --budget hour --workers ray
        on the cluster of RAY_ADDRESS, or a local one; timings run here
    linnet report runs/reproduce-quick --csv numbers.csv
        the page again, and the numbers as a table

Ctrl-C or a kill at any time; the same command goes on.
"""

reproduce = App(name="reproduce", help_format="plaintext", help_epilogue=LESSON)
reproduce.help = "Check the claims of three papers on this machine; a scoreboard and one page."


@reproduce.default
def run_reproduce(
    *what: str,
    budget: str = "quick",
    out: Path | None = None,
    workers: str | None = None,
    shipped: Annotated[bool, FLAG] = False,
    skip_damaged: Annotated[bool, FLAG] = False,
    list: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """The options of `linnet reproduce`.

    Parameters
    ----------
    what
        all, rnn, rebased, icl, open, or claims by name or number; all when not given.
    budget
        quick, hour, paper or smoke.
    out
        Folder for rows and page; runs/reproduce-BUDGET when not given.
    workers
        Processes, or ray for the cluster of RAY_ADDRESS or a local one; one per core when not given. Timings
        run one at a time in this process, whatever is said here.
    shipped
        Use only the data that come with linnet, also where LINNET_DATA or ../shared/data has more.
    skip_damaged
        Go on without the lines of the results file that cannot be read; they stay in it.
    list
        Print the claims and what they ask, and run nothing.
    json
        The whole document on standard output, and nothing else there.
    """
    from ..experiments.claims import check_budget, chosen
    from ..experiments.runner import check_workers

    check_budget(budget)
    claims, count = chosen(what or ("all",)), check_workers(workers or os.cpu_count() or 1)
    if list:
        reproduce_show.list_claims(claims, reproduce_show.wide())
        return
    folder = out or OUT / f"reproduce-{budget}"
    try:
        with exclusive(folder):
            status = run(claims, budget, folder, count, shipped, skip_damaged)
            document = write_page(folder, skip_damaged)
    except StateError as error:
        raise way_on(error) from None
    deliver(document, json, reproduce_show.show)
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"the page: {folder / PAGE}")
    if status or document["counts"]["error"]:
        sys.exit(status or 1)


def way_on(error: StateError) -> StateError:
    """A line that is not a row can be left out: the sentence says how."""
    lines = (
        " Or go on without it: --skip-damaged leaves such lines where they are." if "is not a row" in str(error) else ""
    )
    return StateError(f"{error}.{lines}" if lines else str(error))


def run(claims: Any, budget: str, out: Path, count: int | str, shipped: bool, skip_damaged: bool) -> int:
    """Make the rows that are missing; the exit status: 1 if something failed, 130 after Ctrl-C."""
    from ..experiments.claims.folder import begin
    from ..experiments.claims.run import reproduce
    from ..experiments.runner import Hooks
    from .reproduce_watch import ClaimsWatcher

    begun = begin(out, budget, claims, shipped=shipped)
    side_by_side = count if isinstance(count, int) else os.cpu_count() or 1
    console = Console(stderr=True, highlight=False)
    with ClaimsWatcher(console, claims, begun.setting(out), side_by_side, reproduce_show.told) as watcher:
        watch = Hooks(watcher.begin, watcher.row, watcher.failure)
        how: dict[str, Any] = {"workers": count, "watch": watch, "skip_damaged": skip_damaged}
        try:
            return 1 if reproduce(claims, begun, out, **how) else 0
        except KeyboardInterrupt:
            console.print("stopped by Ctrl-C; the same command goes on")
            return 130


def write_page(folder: Path, skip_damaged: bool = False) -> dict[str, Any]:
    """OUT/report.html from the rows; returns the document it was made from."""
    from ..atomic import atomic
    from ..experiments.claims.document import document

    found = document(folder, skip_damaged=skip_damaged)
    with atomic(folder / PAGE) as file:
        file.write(html(found).encode())
    return found
