"""The folder of a run: what it was begun with, its rows, its clock, and what failed.

    OUT/run.json        budget, version of linnet, data sets in use, claims asked for: a run goes on with the same
    OUT/rows.jsonl      a row for every piece of work       OUT/clock.json     wall clock, all starts together
    OUT/failures.json   work that failed last time, and why; gone when it has its rows

A folder that was begun with another budget or version, or that holds something else, is refused and left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ... import __version__
from ...atomic import atomic, remove_torn
from ...data.folders import data_folder
from ...errors import StateError
from ...json_file import read_json
from ...lock import NAME as LOCK
from ...schema import Each, Record, Text, Whole, check
from .claim import Claim, Setting

RUN, ROWS, CLOCK, FAILURES = "run.json", "rows.jsonl", "clock.json", "failures.json"
DATA = ("mnist", "cifar10", "an4", "fsdd", "text", "fewshot", "tiny-lm")
FORMAT = 1
CONTENT = Record(
    {"budget": Text(), "data": Each(Text()), "claims": Each(Text())},
    {"linnet": Text(), "started": Text(), "format": Whole()},
)
FAILED = Each(Record({"unit": Text(), "error": Text(), "keys": Each(Text())}, open=True))


@dataclass(frozen=True)
class Run:
    """What a folder was begun with."""

    budget: str
    data: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    linnet: str = __version__
    started: str = ""
    format: int = FORMAT

    def setting(self, out: Path, **more: Any) -> Setting:
        return Setting(self.budget, out, frozenset(self.data), **more)


def found_data() -> tuple[str, ...]:
    """Names of the data sets that this machine has."""
    return tuple(name for name in DATA if data_folder(name) is not None)


def begin(out: Path, budget: str, claims: Sequence[Claim], *, shipped: bool = False) -> Run:
    """Open a folder for these claims, new or to go on with; writes run.json. shipped: only data that come with us.

    The caller holds the folder (linnet/lock.py) from before this until the run ends.
    """
    names = [claim.name for claim in claims]
    if (out / RUN).exists():
        run = read_run(out)
        _check_same(run, out, budget, shipped)
        run = replace(run, claims=tuple(dict.fromkeys([*run.claims, *names])))
    else:
        _check_empty(out)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        run = Run(budget, () if shipped else found_data(), tuple(names), started=started)
    out.mkdir(parents=True, exist_ok=True)
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        remove_torn(folder)
    with atomic(out / RUN) as file:
        file.write(json.dumps(asdict(run), indent=1).encode())
    return run


def read_run(out: Path) -> Run:
    """StateError unless this is the folder of a run of this version."""
    path = out / RUN
    if not path.is_file():
        raise StateError(f"{out} has no {RUN}; accepted: the --out folder of `linnet reproduce`")
    way_out = "its rows are untouched: begin in another folder"
    found = check(read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError)
    run = Run(**{**found, "data": tuple(found["data"]), "claims": tuple(found["claims"])})
    if (run.format, run.linnet) != (FORMAT, __version__):
        raise StateError(
            f"{out} was made by linnet {run.linnet} and this is {__version__}; name another folder, or read it with "
            "the linnet that made it"
        )
    return run


def _check_same(run: Run, out: Path, budget: str, shipped: bool) -> None:
    if run.budget != budget:
        raise StateError(
            f"{out} holds a run of budget {run.budget}, and {budget} is asked for; name another folder with --out, or "
            f"ask for --budget {run.budget}"
        )
    if shipped and run.data:
        raise StateError(f"{out} was begun with {', '.join(run.data)}; leave --shipped out, or name another folder")
    gone = [name for name in run.data if data_folder(name) is None]
    if gone:
        raise StateError(
            f"{out} was begun with the data set {gone[0]}, which is not here now; set LINNET_DATA to its folder, or "
            "name another folder with --out"
        )


def _check_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise StateError(f"{out} is a file; name a folder with --out")
    held = sorted(path.name for path in out.iterdir() if path.name != LOCK) if out.is_dir() else []
    if held:
        raise StateError(f"{out} holds {held[0]} and no {RUN}: it is not the folder of a run; name another with --out")


def write_failures(out: Path, failures: Iterable[dict[str, Any]]) -> None:
    """Of the last run; none takes the file away."""
    found = list(failures)
    if found:
        with atomic(out / FAILURES) as file:
            file.write(json.dumps(found, indent=1).encode())
    else:
        (out / FAILURES).unlink(missing_ok=True)


def read_failures(out: Path) -> list[dict[str, Any]]:
    """[{"unit", "error", "keys"}]; a file that is damaged is refused."""
    path, way_out = out / FAILURES, "delete it: what failed is tried again"
    if not path.is_file():
        return []
    return check(read_json(path, way_out, refuse=StateError), FAILED, path, way_out, refuse=StateError)
