"""`linnet icl table`: train and measure any part of the paper's Table 1 and compare it with the paper's numbers.

linnet/labs/icl/table.py trains, linnet/labs/icl/table_compare.py compares, icl_table_show.py prints; this file holds
the options, the progress and the JSON. torch is imported only when there is something to run.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli.common import FLAG, SEVERAL
from . import icl_table_show
from .options import check_one_format, check_show_only, given, worker_count
from .rows_watcher import RowsWatcher

OUT = Path("runs") / "icl"
QUICK: dict[str, Any] = {"layers": (1, 2, 3), "noise": ("U5",), "sequences": 20_000}
EPILOG = """\
Train FULL, DIAG and GD++ linear transformers on noisy linear regression and
print, for each number of layers, model and noise, the paper's loss and ours.

The loss is half the squared error above that of the oracle, ridge regression
that knows the noise level. It is measured on 100,000 new sequences, with a
standard error. A cell is better or worse when it differs from the paper by more
than two standard errors, which include both sides' errors and the paper's
rounding.

Noise has short names: U5 is a sigma uniform on (0, 5) for each sequence, 1,3 is
one of the two, =2 is always 2.

Examples

    linnet icl table --quick
        layers 1 to 3 on U5, 20,000 sequences: minutes
    linnet icl table --models diag --layers 4 --noise U5 1,3 --seeds 5
        the best of five seeds, as the paper reports
    linnet icl table --workers 2
        all of it; interrupt or kill it at any time, the same command resumes
    linnet icl table --show runs/icl --details
        the results so far, with median, trimmed mean and the share that diverged
"""

table = App(name="table", help_format="plaintext", help_epilogue=EPILOG)


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
    quick: Annotated[bool, FLAG] = False,
    show: Path | None = None,
    details: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
) -> None:
    """Run `linnet icl table`.

    Parameters
    ----------
    models
        full, diag, gd++; default: all.
    layers
        Numbers or ranges, such as 1-3 5; default: 1-7. The fast recipe also trains the
        shallower DIAG and GD++, from which the deeper ones grow.
    noise
        Short names, such as U0 U5 1,3; default: the paper's ten.
    seeds
        Models per cell; the best is shown, as in the paper, and all are kept; default: 1.
    recipe
        fast (ours: seconds to minutes a model), or paper (Adam, 200,000 steps of 2,048 sequences).
    workers
        Number of processes, or ray for the cluster at RAY_ADDRESS or a local one; default: one per core.
    sequences
        New sequences for the measurement; default: 100000.
    out
        Folder for rows and models; default: runs/icl, runs/icl-quick with --quick.
    quick
        Layers 1-3 on U5, 20,000 sequences; other options still apply.
    show
        Print the contents of this folder and train nothing.
    details
        Also print median, trimmed mean, share that diverged, both estimators and seconds.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print the table as Markdown.
    """
    asked = given(seeds=seeds, recipe=recipe, sequences=sequences, kinds=models, noise=noise)
    asked |= {"layers": parse_layers(layers)} if layers else {}
    check_one_format(json, markdown)
    failed, interrupted = False, False
    if show is not None:
        unused = [*asked, *given(workers=workers, out=out), *["quick"] * quick]
        check_show_only(show, [name.replace("kinds", "models") for name in unused])
        where = show
    else:
        where = out or (OUT.with_name("icl-quick") if quick else OUT)
        options = {**(QUICK if quick else {}), **asked}
        failed, interrupted = run(options, where, worker_count(workers), Console(stderr=True))
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
    """Return the numbers of a list such as 1-3 5: (1, 2, 3, 5)."""
    layers: set[int] = set()
    for part in parts:
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            low, high = 1, 0
        if low > high:
            raise ValueError(f"--layers is {part!r}; accepted: numbers or ranges, such as 1-7 or 2 4")
        layers.update(range(low, high + 1))
    return tuple(sorted(layers))


def run(options: dict[str, Any], out: Path, workers: str, console: Console) -> tuple[bool, bool]:
    """Train the missing cells; return whether a unit failed, and whether Ctrl-C stopped the run."""
    from ..core.runner import Hooks
    from ..icl import table as icl_table
    from ..icl import table_units as icl_units
    from ..icl.noise import Noise

    if "noise" in options:
        options["noise"] = tuple(dict.fromkeys(Noise.parse(text).name for text in options["noise"]))
    plan = icl_units.Plan(**options)
    with RowsWatcher(console, "icl table", icl_units.cost, icl_table_show.one_line) as watcher:

        def start(units: Sequence[icl_units.Unit]) -> None:
            watcher.start([config for unit in units for config in unit.missing()])

        hooks = Hooks(start, watcher.row, watcher.failure)
        try:
            failures = icl_table.run_table(plan, out, workers=workers, hooks=hooks)
        except KeyboardInterrupt:
            return False, True
    return bool(failures), False


def has_rows(folder: Path) -> bool:
    from ..core.results import ROWS

    return (folder / ROWS).is_file() and (folder / ROWS).stat().st_size > 0


def read(folder: Path) -> dict[str, Any]:
    """Return the document of a folder."""
    from ..core.clock import read_timed
    from ..icl.table_compare import document
    from ..icl.table_units import EXPERIMENT

    return document(*read_timed(folder, EXPERIMENT, "linnet icl table"))
