"""`linnet reproduce`: check the claims of three papers on this machine; a scoreboard and one page.

The claims are in linnet/labs/claims, the page in linnet/labs/report/reproduce.py; this file holds the options.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli.common import FLAG, deliver
from ...errors import StateError
from ...lock import exclusive
from ..report.reproduce import html
from . import reproduce_day, reproduce_show

if TYPE_CHECKING:
    from ..core.plan import Limit

OUT = Path("runs")
PAGE = "report.html"
EPILOG = """\
Each claim is a statement that is true or false, the work that tests it here, and
a rule, printed with the result, that reads the rows. Outcomes:

    holds, does not hold, too close to call
        at the sizes of the paper, with every control passed (baselines
        learned, nothing at its ceiling, a quiet machine) and 5 repeats or more
    seen here, not seen here
        at other sizes: true of these sizes only, and counted apart
    not tested here
        a control failed, rows are missing or there was no time; it says which

A verdict has a scope, printed with it, such as "d = 64, 5 seeds". Next to it
stands the committed evidence: this machine agrees, differs (because of size,
data or noise), adds nothing, or the claim was not run.

    rnn       Transformers are RNNs: exactness, speed, memory, generation,
              copying, digits, speech
    rebased   ReBased and Based: recall at equal bytes, length, ablation, IoU,
              text, few-shot
    icl       Versatile in-context learners: the table, theorems, adaptivity
    open      questions from reviews: kernels by task, short sequences, other
              kinds of attention, random features

Budgets: quick (8 minutes, or --minutes: the speed of the machine is measured
first, whole claims are chosen to fit, the rest is named with what it would
cost), hour (one to two hours on two cores), day (recall at the papers' sizes: each
run until it has converged, in stages, at low priority; --plan shows what exists
and what the rest would cost), paper (the published runs, for a cluster: --workers
ray), smoke (a minute, only to check that everything runs).

Examples

    linnet reproduce
        everything that fits; runs/reproduce-quick/report.html is the page
    linnet reproduce --minutes 20
        the same with more time; rows that exist are kept
    linnet reproduce icl copy T7
        a paper, a claim by name, a claim by number
    linnet reproduce --budget day --plan
        rows and core-hours of each claim and stage, done and to do
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
    minutes: str | None = None,
    shipped: Annotated[bool, FLAG] = False,
    plan: Annotated[bool, FLAG] = False,
    join: Path | None = None,
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
        quick, hour, day, paper or smoke.
    out
        Folder for rows and page; default: runs/reproduce-BUDGET.
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core. Timings
        always run one at a time in this process.
    minutes
        Time limit; default: 8 for quick, none for the other budgets. What has no time is named, and the same command
        continues with it.
    shipped
        Use only the data shipped with linnet, even where LINNET_DATA or ../shared/data has more.
    plan
        With --budget day: show which rows the folder has and lacks and what the rest would cost, and run nothing.
    join
        With --budget day: first take the rows of this folder that the run needs; rows of other configurations stay out.
    skip_damaged
        Skip the lines of the results file that cannot be read; they stay in the file.
    list
        List the claims and their statements, and run nothing.
    json
        Print the whole document as JSON, and nothing else, on standard output.
    """
    from ..claims import check_budget, chosen
    from ..core.plan import Limit, check_minutes
    from ..core.runner import check_workers

    began = monotonic()
    check_budget(budget)
    time = check_minutes(minutes, budget)
    claims, count = chosen(what or ("all",), budget=budget), check_workers(workers or os.cpu_count() or 1)
    if list:
        reproduce_show.list_claims(claims, reproduce_show.wide())
        return
    folder = out or OUT / f"reproduce-{budget}"
    reproduce_day.check_options(budget, plan, join)
    if join is not None:
        reproduce_day.join_rows(join, claims, budget, folder, shipped)
    if plan:
        reproduce_day.show(claims, budget, folder, skip_damaged)
        return
    side_by_side = count if isinstance(count, int) else os.cpu_count() or 1
    limit = None if time is None else Limit(60 * time, side_by_side, began=began)
    try:
        with exclusive(folder):
            check_readable(folder, skip_damaged)
            status = run(claims, budget, folder, count, side_by_side, limit, shipped, skip_damaged)
            document = write_page(folder, skip_damaged)
    except StateError as error:
        raise with_hint(error) from None
    deliver(document, json, reproduce_show.show)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if left := not_run(document):
        console.print(left)
    console.print(f"the page: {folder / PAGE}")
    if status or document["counts"]["error"]:
        sys.exit(status or 1)


def check_readable(folder: Path, skip_damaged: bool) -> None:
    """Refuse, before any work, a folder or committed evidence from which no page could be made at the end."""
    from ..claims import claims
    from ..claims.document import read_folder
    from ..core.evidence import read_evidence
    from ..core.folder import RUN

    read_evidence()
    if (folder / RUN).exists():
        read_folder(folder, claims(), skip_damaged=skip_damaged)


def not_run(document: dict[str, Any]) -> str:
    """Return how many claims had no time, and the way out; "" if all had."""
    from ..core.plan import spoken

    times = [claim["time"] for claim in document["claims"] if claim.get("time")]
    if not times:
        return ""
    cost, minutes = spoken(sum(time["seconds"] for time in times)), max(time["minutes"] for time in times)
    claims = f"{len(times)} claims were" if len(times) > 1 else "1 claim was"
    return (
        f"{claims} not run for lack of time: at most {cost} more; the same command continues, or --minutes {minutes:g}"
    )


def with_hint(error: StateError) -> StateError:
    """Add to the refusal of a damaged line how to skip it."""
    skip = " Or continue without it: --skip-damaged ignores such lines and leaves them in the file."
    return StateError(f"{error}.{skip}") if "is not a row" in str(error) else error


def run(
    claims: Any,
    budget: str,
    out: Path,
    count: int | str,
    side_by_side: int,
    limit: Limit | None,
    shipped: bool,
    skip_damaged: bool,
) -> int:
    """Compute the missing rows; return the exit status: 1 if something failed, 130 after Ctrl-C."""
    from ..core.claim import DAY
    from ..core.folder import begin
    from ..core.queue import lower_priority
    from ..core.reproduce import reproduce
    from ..core.runner import Hooks
    from .reproduce_watch import ClaimsWatcher

    begun = begin(out, budget, claims, shipped=shipped)
    if budget == DAY:
        lower_priority()
    console = Console(stderr=True, highlight=False)
    how: dict[str, Any] = {"workers": count, "skip_damaged": skip_damaged, "limit": limit}
    with ClaimsWatcher(
        console, claims, begun.setting(out), side_by_side, reproduce_show.claim_line, limit=limit
    ) as watcher:
        watch = Hooks(watcher.begin, watcher.row, watcher.failure, watcher.remark)
        try:
            return 1 if reproduce(claims, begun, out, watch=watch, **how) else 0
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
