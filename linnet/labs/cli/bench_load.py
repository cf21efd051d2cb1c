"""`linnet bench load`: time one thread against several, on an idle machine and on a busy one.

Options, progress bar, table and JSON of the measurements in linnet/labs/bench/load.py. torch is
imported only when there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ...cli.common import FLAG, SEVERAL, Numbers, deliver
from ...errors import BackendError
from ..bench.load import QUICK, TASKS, LoadSettings, make, race
from .bench_frame import measuring, new_document
from .bench_show import new_table, print_interrupted, print_table, provenance
from .options import given

EPILOG = """\
Time a training step and a decoding step on one thread and on several, first
alone, then next to programs that never pause. This command starts and ends
these programs itself.

A ratio is the time on several threads / the time on one: below 1, the threads
are worth it. "Spinning" means threads that always wait by spinning, as OpenMP
does by default. Turns alternate in one process. Times are the median of the
rounds, with the minimum in parentheses. Close other programs: the row without
competitors assumes an idle machine.

Two examples

    linnet bench load --quick
        a minute: training and float32 decoding

    linnet bench load --competitors 0 1 2 4 --json > load.json
        four loads, as JSON
"""

load = App(name="load", help_epilogue=EPILOG, help_format="plaintext")


@load.default
def run_load(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    tasks: Annotated[list[str] | None, SEVERAL] = None,
    competitors: Numbers = None,
    threads: int | None = None,
    rounds: int | None = None,
) -> None:
    """Run `linnet bench load`.

    Parameters
    ----------
    quick
        Training and float32 decoding in 3 rounds; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    tasks
        train, "decode float32", "decode int8"; default: all.
    competitors
        How many programs compete; default: 0 2.
    threads
        Threads to compare with one; default: 2.
    rounds
        Rounds of each row, at least 3; default: 12.
    """
    options = given(threads=threads, rounds=rounds, tasks=tasks, competitors=competitors)
    document = measure(LoadSettings(**{**(QUICK if quick else {}), **options}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: LoadSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    from ...native import library, memory

    if library.library() is None:
        raise BackendError(f"linnet bench load times the native kernels, which are off: {library.reason()}")
    document = new_document(settings=asdict(settings), tasks=TASKS, rows=[])
    memory.keep_freed()
    with measuring(document, console) as progress:
        bar = progress.add_task("", total=len(settings.tasks) * len(settings.competitors))
        for task in settings.tasks:
            call = make(task)
            for count in settings.competitors:
                progress.update(bar, description=f"{task}, {count} competing")
                document["rows"].append(race(settings, task, call, count))
                progress.advance(bar)
    return document


def show(document: dict[str, Any], console: Console) -> None:
    settings = document["settings"]
    console.print(f"{provenance(document)}; {settings['rounds']} rounds", highlight=False)
    for task in settings["tasks"]:
        rows = [row for row in document["rows"] if row["task"] == task]
        if rows:
            print_table(console, f"{task}: {document['tasks'][task]}", table(rows))
    print_interrupted(document, console)


def table(rows: list[dict[str, Any]]) -> Table:
    many = f"{rows[0]['threads']} threads"
    drawn = new_table("competing", "1 thread, ms", f"{many}, ms", "ratio", "spinning, ms", "ratio", "rounds asleep")
    for row in rows:
        times = {name: f"{row[name]['median_s'] * 1e3:.2f} ({row[name]['min_s'] * 1e3:.2f})" for name in TIMES}
        ratios = {name: f"{row[name]['ratio']:.2f} ({row[name]['ratio_min']:.2f})" for name in TIMES[1:]}
        several = (times["several"], ratios["several"], times["spinning"], ratios["spinning"])
        drawn.add_row(str(row["competitors"]), times["one"], *several, f"{row['slept']:.0%}")
    return drawn


TIMES = ("one", "several", "spinning")
