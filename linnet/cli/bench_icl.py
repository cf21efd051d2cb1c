"""`linnet bench icl`: a training step of the in-context regression paper, native code beside eager torch.

The measuring is in linnet/bench/icl.py; here are the options, the progress bar, the table and the JSON. torch is
imported only once there is something to run, so that help and a refused option come at once.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..bench.icl import PAPER_HOURS, QUICK, STEPS, ICLSettings, race
from . import doctor
from .bench import Numbers
from .bench_show import deliver, made_on, new_table, print_table, say_interrupted

FORMAT = 1  # of the JSON document
LESSON = """\
Time one training step of the in-context regression paper (arXiv:2402.14180):
draw the sequences (20 examples of 10 features, noise U5), forward, backward,
Adam; 7 layers of FULL and a batch of 2,048 unless told otherwise.

Three programs do the same step: our native code, eager torch on tokens as the
paper writes it, and eager torch on sums of the examples. Their gradients are
compared with float64 first. They take turns in one process, with an sgemm in
every round: the minimum of the rounds counts, the median stands beside it in
brackets. Per cent is of the sgemm rate on the flops of the matrix products
alone, 10 of 11 x 11 matrices in each layer but the last (4 for DIAG), symmetric
ones counted half.

Two examples

    linnet bench icl --quick
        some seconds: one thread, 3 rounds

    linnet bench icl --model diag --json > icl.json
        1 and 2 threads, for a program
"""

icl = App(name="icl", help_epilogue=LESSON, help_format="plaintext")


@icl.default
def run_icl(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    model: str | None = None,
    layers: int | None = None,
    batch: int | None = None,
    threads: Numbers = None,
    rounds: int | None = None,
) -> None:
    """The options of `linnet bench icl`.

    Parameters
    ----------
    quick
        One thread in 3 rounds; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    model
        full or diag; full when not given.
    layers
        Layers of the model, at least 2; 7 when not given.
    batch
        Sequences of a step; 2048 when not given.
    threads
        Numbers of threads; 1 2 when not given.
    rounds
        Rounds for each number of threads, at least 3; 7 when not given.
    """
    asked: dict[str, Any] = {"model": model, "layers": layers, "batch": batch, "rounds": rounds}
    asked["threads"] = None if threads is None else tuple(threads)
    given = {name: value for name, value in asked.items() if value is not None}
    document = measure(ICLSettings(**{**(QUICK if quick else {}), **given}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: ICLSettings, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    import torch

    from ..native import library

    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "native": library.info()}
    document: dict[str, Any] = {"format": FORMAT, **about, "settings": asdict(settings), "steps": STEPS}
    document |= {"paper_hours": PAPER_HOURS, "rows": [], "interrupted": False}
    before = torch.get_num_threads()
    try:
        with Progress(console=console, transient=True) as progress:
            for threads in progress.track(settings.threads, description="training steps"):
                document["rows"].append(race(settings, threads))
    except KeyboardInterrupt:
        document["interrupted"] = True
    finally:
        torch.set_num_threads(before)
    return document


def show(document: dict[str, Any], console: Console) -> None:
    settings = document["settings"]
    console.print(f"{made_on(document)}; {settings['rounds']} rounds, float32", highlight=False)
    what = f"{settings['model']}, {settings['layers']} layers, batch {settings['batch']:,}"
    for row in document["rows"]:
        title = f"{what}, threads {row['threads']} (sgemm {row['sgemm']['gflops']:.0f} GF/s)"
        print_table(console, title, table(row))
    fewest, most = document["paper_hours"]
    console.print(f"{STEPS:,} steps are one model of the paper, which says {fewest} to {most} hours on an H100.")
    say_interrupted(document, console)


def table(row: dict[str, Any]) -> Table:
    found = new_table("form", "ms per step", "native is faster", "% of sgemm", f"minutes for {STEPS:,} steps")
    for name, entry in row["forms"].items():
        ms = f"{entry['min_s'] * 1e3:.2f} ({entry['median_s'] * 1e3:.2f})"
        faster = "-" if name == "native" else f"{entry['slower']:.1f}x ({entry['slower_median']:.1f}x)"
        minutes = f"{entry['minutes']:.1f} ({entry['minutes_median']:.1f})"
        found.add_row(name, ms, faster, f"{entry['sgemm_percent']:.0f}", minutes)
    return found
