"""`linnet recall study`: one claim about recall, the runs that test it, and the outcome that its rule allows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App
from rich.console import Console

from ...cli.common import FLAG, deliver
from ..core.claim import DAY, Claim, Setting
from ..core.results import Row, key
from ..report.recall import studies_html
from . import recall_show
from .options import check_one_format, check_show_only, given, worker_count
from .recall import OUT, watched

if TYPE_CHECKING:
    from ..recall.config import RecallConfig

EPILOG = """\
Each study tests one statement of the papers: what they report, which runs test it
here, and which rule and controls turn the rows into an outcome. At the papers' sizes
a statement holds, does not hold or is too close to call; at other sizes it is seen
here or not seen here; where a control fails it is not tested. Without a name the
studies are listed.

Budgets: smoke, quick, hour and paper are those of `linnet reproduce` (seconds,
only to check that it runs; under a minute; this study's share of an hour; the
published runs, for a cluster: --workers ray). One more lies between hour and
day: long (minutes on two cores, larger tables of docs/science/recall.md). Day is
that of `linnet reproduce` too, for the studies that have it.

    linnet recall study
    linnet recall study ablation
    linnet recall study length --budget hour --workers 2
    linnet recall study iou --show runs/recall-study/iou-long
"""


def ready(study: Claim, budget: str, rows: Sequence[Row]) -> list[RecallConfig]:
    """Return the runs that need no row of another; of a day run first those that choose the rates."""
    known = {key(row["config"]): row for row in rows}
    setting = Setting(budget, row=lambda config: known.get(key(config)))
    return [unit.work for unit in study.work(setting) if not unit.waits]


study = App(name="study", help_format="plaintext", help_epilogue=EPILOG)


@study.default
def run_study(
    name: str | None = None,
    *,
    budget: str = "long",
    workers: str | None = None,
    out: Path | None = None,
    show: Path | None = None,
    html: Path | None = None,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
) -> None:
    """Run `linnet recall study`.

    Parameters
    ----------
    name
        Name of the study; without one the studies are listed.
    budget
        smoke, quick, hour, long, day or paper.
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core.
    out
        Folder for the rows; default: runs/recall-study/NAME-BUDGET.
    show
        Print the contents of this folder and run nothing.
    html
        Also write a page, with the study's figures if it has any.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print outcome and tables as Markdown.
    """
    from ...errors import unknown
    from ..claims.rebased import studies
    from ..core.clock import read_timed
    from ..recall.document import study_document
    from ..recall.study import BUDGETS
    from ..recall.work import run_configs

    check_one_format(json, markdown)
    known = studies()
    if name is None:
        recall_show.list_studies(known.values(), Console(width=None if sys.stdout.isatty() else 150))
        return
    if name.replace("_", "-") not in known:
        raise unknown("study", name, known)
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)
    if show is not None:
        check_show_only(show, [*given(out=out, workers=workers)])
    chosen, status = known[name.replace("_", "-")], 0
    folder = show or out or OUT.with_name("recall-study") / f"{chosen.name}-{budget}"
    if show is None:
        if not chosen.work(Setting(budget)):
            why = chosen.read([]).sentence if budget != DAY else "take --budget long or hour"
            raise ValueError(f"{chosen.name} has no runs at budget {budget}: {why}")
        count, passes = worker_count(workers), [partial(ready, chosen, budget)] * (2 if budget == DAY else 1)
        status = watched(lambda hooks: run_configs(passes, folder, workers=count, hooks=hooks), folder)
    document = study_document(chosen, *read_timed(folder, "recall", "linnet recall"))
    if html is not None:
        recall_show.write_page(studies_html([document]), html)
    if markdown:
        print(recall_show.study_markdown(document), end="")
    else:
        deliver(document, json, recall_show.show_study)
    if status:
        sys.exit(status)
