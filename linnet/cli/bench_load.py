"""`linnet bench load`: one thread against several, on an idle machine and on a busy one.

The measuring is in linnet/bench/load.py; here are the options, the progress bar, the table and the JSON. torch is
imported only once there is something to run, so that help and a refused option come at once.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..bench.load import QUICK, TASKS, LoadSettings, make, race
from ..errors import BackendError
from . import doctor
from .bench import SEVERAL, Numbers
from .bench_show import deliver, made_on, new_table, print_table, say_interrupted

FORMAT = 1  # of the JSON document
EPILOG = """\
Time a training step and a decoding step on one thread and on several, first
alone, then beside programs that never pause. These are started and ended by
this command.

A ratio is the time on several threads / the time on one: below 1, the threads
are worth it. "Spinning" is the same with threads that always wait by spinning,
as OpenMP does by default. Turns alternate in one process; the median of the
rounds counts, the minimum stands beside it in brackets. Close other programs,
or the row without competitors is not what it says.

Two examples

    linnet bench load --quick
        a minute: training and float32 decoding

    linnet bench load --competitors 0 1 2 4 --json > load.json
        four loads, for a program
"""

load = App(name="load", help_epilogue=EPILOG, help_format="plaintext")


@load.default
def run_load(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    tasks: Annotated[list[str] | None, SEVERAL] = None,
    competitors: Numbers = None,
    threads: int | None = None,
    rounds: int | None = None,
) -> None:
    """The options of `linnet bench load`.

    Parameters
    ----------
    quick
        Training and float32 decoding in 3 rounds; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    tasks
        train, "decode float32", "decode int8"; all of them when not given.
    competitors
        Numbers of competing programs; 0 2 when not given.
    threads
        Threads to compare with one; 2 when not given.
    rounds
        Rounds of each row, at least 3; 12 when not given.
    """
    asked: dict[str, Any] = {"threads": threads, "rounds": rounds}
    asked |= {name: value and tuple(value) for name, value in (("tasks", tasks), ("competitors", competitors))}
    given = {name: value for name, value in asked.items() if value is not None}
    document = measure(LoadSettings(**{**(QUICK if quick else {}), **given}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: LoadSettings, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    import torch

    from ..native import library, memory

    if library.library() is None:
        raise BackendError(f"linnet bench load times the native kernels, which are off: {library.reason()}")
    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "native": library.info()}
    document: dict[str, Any] = {"format": FORMAT, **about, "settings": asdict(settings), "tasks": TASKS}
    document |= {"rows": [], "interrupted": False}
    before = torch.get_num_threads()
    memory.keep_freed()
    try:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("", total=len(settings.tasks) * len(settings.competitors))
            for task in settings.tasks:
                call = make(task)
                for count in settings.competitors:
                    progress.update(bar, description=f"{task}, {count} competing")
                    document["rows"].append(race(settings, task, call, count))
                    progress.advance(bar)
    except KeyboardInterrupt:
        document["interrupted"] = True
    finally:
        torch.set_num_threads(before)
    return document


def show(document: dict[str, Any], console: Console) -> None:
    settings = document["settings"]
    console.print(f"{made_on(document)}; {settings['rounds']} rounds", highlight=False)
    for task in settings["tasks"]:
        rows = [row for row in document["rows"] if row["task"] == task]
        if rows:
            print_table(console, f"{task}: {document['tasks'][task]}", table(rows))
    say_interrupted(document, console)


def table(rows: list[dict[str, Any]]) -> Table:
    many = f"{rows[0]['threads']} threads"
    found = new_table("competing", "1 thread, ms", f"{many}, ms", "ratio", "spinning, ms", "ratio", "rounds asleep")
    for row in rows:
        times = {name: f"{row[name]['median_s'] * 1e3:.2f} ({row[name]['min_s'] * 1e3:.2f})" for name in TIMES}
        ratios = {name: f"{row[name]['ratio']:.2f} ({row[name]['ratio_min']:.2f})" for name in TIMES[1:]}
        several = (times["several"], ratios["several"], times["spinning"], ratios["spinning"])
        found.add_row(str(row["competitors"]), times["one"], *several, f"{row['slept']:.0%}")
    return found


TIMES = ("one", "several", "spinning")
