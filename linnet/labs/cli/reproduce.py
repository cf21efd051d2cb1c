"""`linnet reproduce`: check the claims of three papers on this machine; a scoreboard and one page.

The claims are in linnet/labs/claims, the page in linnet/labs/report/reproduce.py; this file holds the options.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli.common import FLAG, deliver
from ...errors import StateError
from ...lock import exclusive
from ..report.reproduce import html
from . import reproduce_show

OUT = Path("runs")
PAGE = "report.html"
EPILOG = """\
Each claim is one statement of a paper, the work that tests it here, and a rule
that turns the rows into a verdict: confirmed, refuted, unclear, or not testable
at this budget. Numbers come with intervals, next to the paper's.

    rnn       Transformers are RNNs: exactness, speed, memory, generation at the
              paper's full sizes, copying, digits, speech
    rebased   ReBased and Based: recall at equal bytes, length, ablation, IoU,
              text, few-shot
    icl       Versatile in-context learners: the table, theorems, adaptivity
    open      open questions from reviews: kernels by task, short sequences,
              other kinds of attention, random features

Budgets: quick (10 minutes on two cores for everything), hour (at most 90),
paper (the published sizes, for a cluster: --workers ray), smoke (a minute, only
to check that everything runs; its verdicts mean nothing).

Examples

    linnet reproduce
        everything; runs/reproduce-quick/report.html is the page
    linnet reproduce icl copy T7
        a paper, a claim by name, a claim by number
    linnet reproduce --list
        all claims
    linnet reproduce all --budget hour --workers ray
        on the cluster of RAY_ADDRESS, or a local one; timings run here
    linnet report runs/reproduce-quick --csv numbers.csv
        rebuild the page, and write the numbers as a table

Interrupt or kill it at any time; the same command resumes.
"""

reproduce = App(name="reproduce", help_format="plaintext", help_epilogue=EPILOG)
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
    """Run `linnet reproduce`.

    Parameters
    ----------
    what
        all, rnn, rebased, icl, open, or claims by name or number; default: all.
    budget
        quick, hour, paper or smoke.
    out
        Folder for rows and page; default: runs/reproduce-BUDGET.
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core. Timings
        always run one at a time in this process.
    shipped
        Use only the data shipped with linnet, even where LINNET_DATA or ../shared/data has more.
    skip_damaged
        Skip the lines of the results file that cannot be read; they stay in the file.
    list
        List the claims and their questions, and run nothing.
    json
        Print the whole document as JSON, and nothing else, on standard output.
    """
    from ..claims import check_budget, chosen
    from ..core.runner import check_workers

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
        raise with_hint(error) from None
    deliver(document, json, reproduce_show.show)
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"the page: {folder / PAGE}")
    if status or document["counts"]["error"]:
        sys.exit(status or 1)


def with_hint(error: StateError) -> StateError:
    """Add to the refusal of a damaged line how to skip it."""
    skip = " Or continue without it: --skip-damaged ignores such lines and leaves them in the file."
    return StateError(f"{error}.{skip}") if "is not a row" in str(error) else error


def run(claims: Any, budget: str, out: Path, count: int | str, shipped: bool, skip_damaged: bool) -> int:
    """Compute the missing rows; return the exit status: 1 if something failed, 130 after Ctrl-C."""
    from ..core.folder import begin
    from ..core.reproduce import reproduce
    from ..core.runner import Hooks
    from .reproduce_watch import ClaimsWatcher

    begun = begin(out, budget, claims, shipped=shipped)
    side_by_side = count if isinstance(count, int) else os.cpu_count() or 1
    console = Console(stderr=True, highlight=False)
    with ClaimsWatcher(console, claims, begun.setting(out), side_by_side, reproduce_show.claim_line) as watcher:
        watch = Hooks(watcher.begin, watcher.row, watcher.failure)
        how: dict[str, Any] = {"workers": count, "watch": watch, "skip_damaged": skip_damaged}
        try:
            return 1 if reproduce(claims, begun, out, **how) else 0
        except KeyboardInterrupt:
            console.print("stopped by Ctrl-C; the same command resumes")
            return 130


def write_page(folder: Path, skip_damaged: bool = False) -> dict[str, Any]:
    """Write OUT/report.html from the rows and return its document."""
    from ...atomic import atomic
    from ..claims.document import document

    content = document(folder, skip_damaged=skip_damaged)
    with atomic(folder / PAGE) as file:
        file.write(html(content).encode())
    return content
