"""`linnet bench icl`: time a training step of the in-context regression paper, native code against eager torch.

Options, progress bar, table and JSON of the measurements in linnet/labs/bench/icl.py. torch is
imported only when there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ...cli.common import FLAG, Numbers, deliver
from ..bench.icl import PAPER_HOURS, QUICK, STEPS, ICLSettings, race
from .bench_frame import measuring, new_document
from .bench_show import new_table, print_interrupted, print_table, provenance
from .options import given

EPILOG = """\
Time one training step of the in-context regression paper (arXiv:2402.14180):
draw the sequences (20 examples of 10 features, noise U5), forward, backward,
Adam; by default 7 layers of FULL and a batch of 2,048.

Three implementations do the same step: our native code, eager torch on tokens
as in the paper, and eager torch on sums of the examples. Their gradients are
first compared with float64. They take turns in one process, with an sgemm in
every round. Times are the minimum of the rounds, with the median in
parentheses. Per cent is of the sgemm rate, counting the flops of the matrix
products alone: 10 products of 11 x 11 matrices in each layer but the last
(4 for DIAG), symmetric ones counted half.

Two examples

    linnet bench icl --quick
        a few seconds: one thread, 3 rounds

    linnet bench icl --model diag --json > icl.json
        1 and 2 threads, as JSON
"""

icl = App(name="icl", help_epilogue=EPILOG, help_format="plaintext")


@icl.default
def run_icl(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    model: str | None = None,
    layers: int | None = None,
    batch: int | None = None,
    threads: Numbers = None,
    rounds: int | None = None,
) -> None:
    """Run `linnet bench icl`.

    Parameters
    ----------
    quick
        One thread in 3 rounds; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    model
        full or diag; default: full.
    layers
        Layers of the model, at least 2; default: 7.
    batch
        Sequences per step; default: 2048.
    threads
        Thread counts; default: 1 2.
    rounds
        Rounds for each number of threads, at least 3; default: 7.
    """
    options = given(model=model, layers=layers, batch=batch, rounds=rounds, threads=threads)
    document = measure(ICLSettings(**{**(QUICK if quick else {}), **options}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: ICLSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    document = new_document(settings=asdict(settings), steps=STEPS, paper_hours=PAPER_HOURS, rows=[])
    with measuring(document, console) as progress:
        for threads in progress.track(settings.threads, description="training steps"):
            document["rows"].append(race(settings, threads))
    return document


def show(document: dict[str, Any], console: Console) -> None:
    settings = document["settings"]
    console.print(f"{provenance(document)}; {settings['rounds']} rounds, float32", highlight=False)
    what = f"{settings['model']}, {settings['layers']} layers, batch {settings['batch']:,}"
    for row in document["rows"]:
        title = f"{what}, threads {row['threads']} (sgemm {row['sgemm']['gflops']:.0f} GF/s)"
        print_table(console, title, table(row))
    fewest, most = document["paper_hours"]
    console.print(f"The paper trains a model for {STEPS:,} steps and reports {fewest} to {most} hours on an H100.")
    print_interrupted(document, console)


def table(row: dict[str, Any]) -> Table:
    drawn = new_table("form", "ms per step", "native speedup", "% of sgemm", f"minutes for {STEPS:,} steps")
    for name, entry in row["forms"].items():
        ms = f"{entry['min_s'] * 1e3:.2f} ({entry['median_s'] * 1e3:.2f})"
        faster = "-" if name == "native" else f"{entry['slower']:.1f}x ({entry['slower_median']:.1f}x)"
        minutes = f"{entry['minutes']:.1f} ({entry['minutes_median']:.1f})"
        drawn.add_row(name, ms, faster, f"{entry['sgemm_percent']:.0f}", minutes)
    return drawn
