"""`linnet icl table`: any part of the paper's Table 1, trained, measured and set beside the paper's numbers.

The work is in linnet/experiments/icl_table.py, the comparison in icl_compare.py, the tables in icl_table_show.py; here
are the options, the progress and the JSON. torch is imported only when there is something to run.
"""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from . import icl_table_show
from .bench import SEVERAL
from .rows_watcher import RowsWatcher

OUT = Path("runs") / "icl"
QUICK: dict[str, Any] = {"layers": (1, 2, 3), "noise": ("U5",), "sequences": 20_000}
LESSON = """\
Train FULL, DIAG and GD++ linear transformers on noisy linear regression and
print, for each number of layers, model and noise, the paper's loss and ours.

The loss is half the squared error above that of the oracle, ridge regression
that is told the noise. It is measured on 100,000 new sequences, with a standard
error. A cell is better or worse when it differs from the paper by more than two
standard errors, both sides' errors and the paper's rounding counted.

Noise has short names: U5 is a sigma uniform on (0, 5) for each sequence, 1,3 is
one of the two, =2 is always 2.

Examples

    linnet icl table --quick
        layers 1 to 3 on U5, 20,000 sequences: minutes
    linnet icl table --models diag --layers 4 --noise U5 1,3 --seeds 5
        the best of five seeds, as the paper reports
    linnet icl table --workers 2
        all of it; Ctrl-C or a kill at any time, the same command goes on
    linnet icl table --show runs/icl --details
        what is there, with median, trimmed mean and the share that diverged
"""

table = App(name="table", help_format="plaintext", help_epilogue=LESSON)


@table.default
def run_table(
    *,
    models: Annotated[list[str] | None, SEVERAL] = None,
    layers: Annotated[list[str] | None, SEVERAL] = None,
    noise: Annotated[list[str] | None, SEVERAL] = None,
    seeds: int | None = None,
    recipe: str | None = None,
    workers: str | None = None,
    sequences: int | None = None,
    out: Path | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    show: Path | None = None,
    details: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    markdown: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The options of `linnet icl table`.

    Parameters
    ----------
    models
        full, diag, gd++; all of them when not given.
    layers
        Numbers or ranges, such as 1-3 5; 1-7 when not given. The fast recipe also trains the
        shallower DIAG and GD++, from which the deeper ones grow.
    noise
        Short names, such as U0 U5 1,3; the paper's ten when not given.
    seeds
        Models of each cell; the best is shown, as in the paper, and all are kept. 1 when not given.
    recipe
        fast (ours: seconds to minutes a model), or paper (Adam, 200,000 steps of 2,048 sequences).
    workers
        Processes, or ray for the cluster of RAY_ADDRESS or a local one; one per core when not given.
    sequences
        New sequences to measure on; 100000 when not given.
    out
        Folder for rows and models; runs/icl when not given, runs/icl-quick with --quick.
    quick
        Layers 1-3 on U5, 20,000 sequences; other options still count.
    show
        Print what this folder has, and train nothing.
    details
        A second table: median, trimmed mean, share that diverged, both estimators, seconds.
    json
        One JSON document on standard output, and nothing else there.
    markdown
        The table for a page, in place of the one for the terminal.
    """
    asked: dict[str, Any] = {"seeds": seeds, "recipe": recipe, "sequences": sequences}
    asked |= {"kinds": models and tuple(models), "noise": noise and tuple(noise)}
    asked["layers"] = layers and parse_layers(layers)
    given = {name: value for name, value in asked.items() if value is not None}
    if json and markdown:
        raise ValueError("--json and --markdown both want standard output; leave one out")
    failed, interrupted = False, False
    if show is not None:
        unused = [*given, *(name for name, value in (("workers", workers), ("out", out)) if value), *["quick"] * quick]
        if unused:
            raise ValueError(f"--show prints what {show} has; leave --{unused[0].replace('kinds', 'models')} out")
        where = show
    else:
        where = out or (OUT.with_name("icl-quick") if quick else OUT)
        options = {**(QUICK if quick else {}), **given}
        failed, interrupted = run(options, where, workers or str(os.cpu_count() or 1), Console(stderr=True))
    if interrupted and not has_rows(where):
        sys.exit(130)
    document = read(where)
    if json:
        print(json_format.dumps(document, indent=1))
    elif markdown:
        print(icl_table_show.markdown(document), end="")
    else:
        icl_table_show.show(document, Console(width=None if sys.stdout.isatty() else 150), details=details)
    if failed or interrupted:
        sys.exit(130 if interrupted else 1)


def parse_layers(parts: Sequence[str]) -> tuple[int, ...]:
    """1-3 5 -> (1, 2, 3, 5)."""
    found: set[int] = set()
    for part in parts:
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            low, high = 1, 0
        if low > high:
            raise ValueError(f"--layers is {part!r}; accepted: numbers or ranges, such as 1-7 or 2 4")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def run(options: dict[str, Any], out: Path, workers: str, console: Console) -> tuple[bool, bool]:
    """Train what is missing; (did a unit fail, was it stopped by Ctrl-C)."""
    from ..experiments import icl_table, icl_units
    from ..tasks import Noise

    if "noise" in options:
        options["noise"] = tuple(dict.fromkeys(Noise.parse(text).name for text in options["noise"]))
    plan = icl_units.Plan(**options)
    with RowsWatcher(console, "icl table", icl_units.cost, icl_table_show.one_line) as watcher:

        def start(units: Sequence[icl_units.Unit]) -> None:
            watcher.start([config for unit in units for config in unit.missing()])

        try:
            failures = icl_table.run_table(
                plan, out, workers=workers, on_start=start, on_row=watcher.row, on_failure=watcher.failure
            )
        except KeyboardInterrupt:
            return False, True
    return bool(failures), False


def has_rows(folder: Path) -> bool:
    from ..experiments.icl_table import ROWS

    return (folder / ROWS).is_file() and (folder / ROWS).stat().st_size > 0


def read(folder: Path) -> dict[str, Any]:
    """The document of a folder."""
    from ..experiments import read_rows
    from ..experiments.clock import minutes
    from ..experiments.icl_compare import document
    from ..experiments.icl_table import CLOCK, ROWS
    from ..experiments.icl_units import EXPERIMENT
    from ..experiments.results import check_experiment

    rows = read_rows(folder / ROWS)
    if not rows:
        raise ValueError(f"{folder} has no row yet; run linnet icl table --out {folder} until the first")
    check_experiment(rows, EXPERIMENT, folder)
    return document(rows, minutes(folder / CLOCK))
