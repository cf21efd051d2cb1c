"""`linnet bench ops`: time our op against its alternatives on this machine; nothing is timed before it agrees.

Options, progress bar and JSON of the measurements in linnet/labs/bench; the tables are in bench_show.py.
torch is imported only when there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli import doctor
from ...cli.common import FLAG, SEVERAL, Numbers
from ...errors import unknown
from ..bench import SECTIONS, Settings, plan, settings
from ..report.plot_file import KINDS, PAINTED
from . import bench_plot, bench_show
from .bench_frame import FORMAT, measuring, publish
from .options import given

# After the options, because the one line registered in main.py stands before them.
EPILOG = """\
Time linnet.linear_attention against scaled_dot_product_attention, plain torch
and the reference library's CPU algorithm, on this machine.

Every competitor gets the same inputs (float32, causal) and must agree with a
float64 reference before it is timed; one that does not is reported as wrong.
All take turns in one process, with an sgemm in every round. Times are the
minimum of the rounds, with the median in parentheses. Close other programs,
and read the ratios (time / linnet's time) rather than the nanoseconds.

Two examples

    linnet bench ops --quick
        half a minute: lengths up to 2,048 and the most common competitors

    linnet bench ops --only ops --lengths 2048 8192 --threads 2 --plot ops.png
        two lengths in depth, as tables and as a figure

Without options everything is measured, which takes about half an hour.
Ctrl-C ends the run early and shows what has been measured.
"""

ops = App(name="ops", help_epilogue=EPILOG, help_format="plaintext")


@ops.default
def run_ops(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    plot: Path | None = None,
    only: Annotated[list[str] | None, SEVERAL] = None,
    lengths: Numbers = None,
    streams: Numbers = None,
    head_dim: Numbers = None,
    threads: Numbers = None,
    rounds: int | None = None,
    limit: float | None = None,
) -> None:
    """Run `linnet bench ops`.

    Parameters
    ----------
    quick
        Lengths up to 2,048, 8 streams, few competitors; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    plot
        Also plot time per token and ratios against length in this file: .html, .svg, or, with the extra `report`,
        .png and .pdf.
    only
        Sections to run: ops, quadratic, threads, block, long, build. Default: all.
    lengths
        Tokens per sequence, for example 64 2048. Default: 16 to 65,536, fewer for large cases.
    streams
        Batch x heads; default: 8 32.
    head_dim
        Width of queries, keys and values; default: 64 128.
    threads
        Thread counts; default: 1 2.
    rounds
        Rounds of each case, at least 7; default: 9.
    limit
        Seconds one competitor may take for all rounds of a case; default: 120. Slower competitors are left out.
    """
    options = given(only=only, lengths=lengths, streams=streams, head_dims=head_dim, threads=threads)
    chosen = settings(quick=quick, rounds=rounds, limit=limit, **options)
    check_plot(plot, chosen)
    document = measure(chosen, Console(stderr=True))
    publish(document, json, bench_show.show, plot, bench_plot.draw, trustworthy)


def check_plot(path: Path | None, chosen: Settings) -> None:
    """Refuse a file that cannot be drawn before the minutes of measuring, not after."""
    if path is None:
        return
    if "ops" not in chosen.only:
        raise ValueError(f"--plot {path} draws the section ops, which is not in --only {' '.join(chosen.only)}; add it")
    if path.suffix.lower() not in KINDS:
        raise unknown("kind of figure", path.suffix, KINDS)
    if path.suffix.lower() in PAINTED and find_spec("matplotlib") is None:
        way_out = f"run pip install 'linnet[report]', or write {path.with_suffix('.svg')}, which does not need it"
        raise ValueError(f"--plot {path} needs matplotlib, which is not installed; {way_out}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}; create it first")


def measure(chosen: Settings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    jobs = plan(chosen)
    document: dict[str, Any] = {"format": FORMAT, **conditions(chosen), "interrupted": False}
    rows = document["rows"] = {section: [] for section in SECTIONS if section in chosen.only}
    with measuring(document, console) as progress:
        bar = progress.add_task("", total=sum(job.seconds for job in jobs))
        for job in jobs:
            progress.update(bar, description=f"{job.section}: {job.title}")
            rows[job.section] += job.run()
            progress.advance(bar, job.seconds)
    return document


def conditions(chosen: Settings) -> dict[str, Any]:
    """Return the machine, the versions and the settings behind the numbers."""
    import torch

    from ...native import library
    from ..bench.competitors import for_elu
    from ..bench.reference import TOLERANCE

    how = {"rounds": chosen.rounds, "threads": list(chosen.threads), "tolerance": TOLERANCE, "dtype": "float32"}
    machine = {**doctor.cpu(), "torch_capability": torch.backends.cpu.get_cpu_capability()}
    about = {one.name: one.about for one in for_elu()}
    return {"machine": machine, "versions": doctor.versions(), "native": library.info(), **how, "competitors": about}


def trustworthy(document: dict[str, Any]) -> bool:
    """Return whether none of our own results is wrong or failed."""
    entries = [(name, entry) for row in bench_show.races(document) for name, entry in row["competitors"].items()]
    return not any(name.startswith("linnet") and entry["status"] in ("wrong", "failed") for name, entry in entries)
