"""`linnet recall study`: one question about recall, the runs that answer it, and the verdict of a rule set before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from ..reports.recall import studies_html
from . import recall_show
from .bench_show import deliver
from .recall import OUT, rows_in, watched

LESSON = """\
Each study asks one question of the papers, says what they found, which runs
answer it here, and by which rule the rows become a verdict: confirmed, refuted,
unclear, or not testable. Without a name the studies are listed.

Budgets: smoke (seconds, only to see that it runs), brief (the smallest runs that
can answer, under a minute on two cores), quick (minutes), hour, paper (the
published sizes, for a cluster: --workers ray).

    linnet recall study
    linnet recall study ablation
    linnet recall study length --budget hour --workers 2
    linnet recall study iou --show runs/recall-study/iou-quick
"""

study = App(name="study", help_format="plaintext", help_epilogue=LESSON)


@study.default
def run_study(
    name: str | None = None,
    *,
    budget: str = "quick",
    workers: str | None = None,
    out: Path | None = None,
    show: Path | None = None,
    html: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    markdown: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The options of `linnet recall study`.

    Parameters
    ----------
    name
        Which study; without one they are listed.
    budget
        smoke, brief, quick, hour or paper.
    workers
        Processes, or ray for the cluster of RAY_ADDRESS or a local one; one per core when not given.
    out
        Folder for the rows; runs/recall-study/NAME-BUDGET when not given.
    show
        Print what this folder has, and run nothing.
    html
        Also write a page, with figures where a study has them (needs the extra report).
    json
        One JSON document on standard output, and nothing else there.
    markdown
        Verdict and tables for a page, in place of those for the terminal.
    """
    from ..errors import unknown
    from ..experiments.recall.document import study_document
    from ..experiments.recall.studies import STUDIES
    from ..experiments.recall.study import BUDGETS
    from ..experiments.recall.work import run_configs

    if json and markdown:
        raise ValueError("--json and --markdown both want standard output; leave one out")
    if name is None:
        recall_show.list_studies(STUDIES.values(), Console(width=None if sys.stdout.isatty() else 150))
        return
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)
    if show is not None and (out is not None or workers is not None):
        raise ValueError(f"--show prints what {show} has; leave --{'out' if out else 'workers'} out")
    found, status, folder = STUDIES[name], 0, show or out or OUT.with_name("recall-study") / f"{name}-{budget}"
    if show is None:
        count = workers or str(os.cpu_count() or 1)
        stages = [lambda rows: found.configs(budget)]
        status = watched(lambda hooks: run_configs(stages, folder, workers=count, hooks=hooks), folder)
    document = study_document(found, *rows_in(folder))
    if html is not None:
        recall_show.write_page(studies_html([document]), html)
    if markdown:
        print(recall_show.study_markdown(document), end="")
    else:
        deliver(document, json, recall_show.show_study)
    if status:
        sys.exit(status)
