"""`linnet bench ops`: our op beside what you would use instead, on this machine; nothing is timed before it agrees.

The measuring is in linnet/bench, the tables in bench_show.py; here are the options, the progress bar and the JSON.
torch is imported only once there is something to run, so that help and a refused option come at once.
"""

from __future__ import annotations

import json as json_format
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..bench import SECTIONS, Job, Settings, plan, settings
from ..errors import unknown
from . import bench_show, doctor

FORMAT = 1  # of the JSON document
SEVERAL = Parameter(consume_multiple=True, negative="")
Numbers = Annotated[list[int] | None, SEVERAL]
# After the options, because the one line registered in main.py stands before them.
LESSON = """\
Time linnet.linear_attention beside scaled_dot_product_attention, plain torch
and the reference library's CPU algorithm, on this machine.

Every competitor gets the same numbers (float32, causal) and must agree with a
float64 reference before it is timed; one that does not is reported as wrong.
All take turns in one process, with an sgemm in every round: the minimum of the
rounds counts, the median stands beside it in brackets. Close other programs,
and read the ratios (time / linnet's time) rather than the nanoseconds.

Two examples

    linnet bench ops --quick
        half a minute: lengths to 2,048, the competitors people ask about

    linnet bench ops --only ops --lengths 2048 8192 --threads 2 --plot ops.png
        two lengths in depth, as tables and as a picture

Without options everything is measured, which takes about half an hour.
Ctrl-C ends it early and shows what there is.
"""

ops = App(name="ops", help_epilogue=LESSON, help_format="plaintext")


@ops.default
def run_ops(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    plot: Path | None = None,
    only: Annotated[list[str] | None, SEVERAL] = None,
    lengths: Numbers = None,
    streams: Numbers = None,
    head_dim: Numbers = None,
    threads: Numbers = None,
    rounds: int | None = None,
    limit: float | None = None,
) -> None:
    """The options of `linnet bench ops`.

    Parameters
    ----------
    quick
        Lengths to 2,048, 8 streams, few competitors; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    plot
        Also draw time per token and ratios against length into this file (needs the extra `report`).
    only
        Sections to run: ops, quadratic, threads, block, long, build. All of them when not given.
    lengths
        Tokens per sequence, for example 64 2048. Not given: 16 to 65,536, fewer for large cases.
    streams
        Batch x heads; 8 32 when not given.
    head_dim
        Width of queries, keys and values; 64 128 when not given.
    threads
        Numbers of threads; 1 2 when not given.
    rounds
        Rounds of each case, at least 7; 9 when not given.
    limit
        Seconds one competitor may take in all rounds of a case; 120 when not given, what is slower is left out.
    """
    asked = {"only": only, "lengths": lengths, "streams": streams, "head_dims": head_dim, "threads": threads}
    given: dict[str, Any] = {name: tuple(value) for name, value in asked.items() if value is not None}
    chosen = settings(quick=quick, rounds=rounds, limit=limit, **given)
    check_plot(plot, chosen)
    document = measure(chosen, Console(stderr=True))
    if json:
        print(json_format.dumps(document, indent=1))
    else:
        bench_show.show(document, Console(width=None if sys.stdout.isatty() else 150))
    if plot is not None:
        from . import bench_plot

        bench_plot.draw(document, plot)
    if document["interrupted"]:
        sys.exit(130)
    if not trustworthy(document):
        sys.exit(1)


def check_plot(path: Path | None, chosen: Settings) -> None:
    """Before the minutes of measuring, not after."""
    if path is None:
        return
    if "ops" not in chosen.only:
        raise ValueError(f"--plot {path} draws the section ops, which is not in --only {' '.join(chosen.only)}; add it")
    if find_spec("matplotlib") is None:
        raise ValueError(f"--plot {path} needs matplotlib, which is not here; pip install 'linnet[report]' brings it")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise unknown("kind of picture", path.suffix, (".png", ".svg", ".pdf"))
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}; make it first")


def measure(chosen: Settings, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    jobs = plan(chosen)
    document: dict[str, Any] = {"format": FORMAT, **conditions(chosen), "interrupted": False}
    rows = document["rows"] = {section: [] for section in SECTIONS if section in chosen.only}
    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(), TextColumn("left"))
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            bar = progress.add_task("", total=sum(job.seconds for job in jobs))
            for job in jobs:
                progress.update(bar, description=f"{job.section}: {job.title}")
                rows[job.section] += run(job)
                progress.advance(bar, job.seconds)
    except KeyboardInterrupt:
        document["interrupted"] = True
    return document


def run(job: Job) -> list[dict[str, Any]]:
    """The rows of one job, on as many threads as it likes; the number of before is put back."""
    import torch

    before = torch.get_num_threads()
    try:
        return job.run()
    finally:
        torch.set_num_threads(before)


def conditions(chosen: Settings) -> dict[str, Any]:
    """Where and how the numbers were made."""
    import torch

    from ..bench.competitors import for_elu
    from ..bench.reference import TOLERANCE
    from ..native import library

    how = {"rounds": chosen.rounds, "threads": list(chosen.threads), "tolerance": TOLERANCE, "dtype": "float32"}
    machine = {**doctor.cpu(), "torch_capability": torch.backends.cpu.get_cpu_capability()}
    about = {one.name: one.about for one in for_elu()}
    return {"machine": machine, "versions": doctor.versions(), "native": library.info(), **how, "competitors": about}


def trustworthy(document: dict[str, Any]) -> bool:
    """False when one of our own answers was wrong or failed."""
    entries = [(name, entry) for row in bench_show.races(document) for name, entry in row["competitors"].items()]
    return not any(name.startswith("linnet") and entry["status"] in ("wrong", "failed") for name, entry in entries)
