"""The folder of a run: its settings, its rows, its clock, and its failures.

    OUT/run.json        budget, version of linnet, data sets in use, claims: a run resumes with the same
    OUT/rows.jsonl      a row for every piece of work       OUT/clock.json     wall clock of all runs together
    OUT/failures.json   work that failed last time, and why; removed once its rows exist
    OUT/postponed.json  claims for which the last run had no time left, and what they would cost

A folder of another budget or version, or with other contents, is refused and left untouched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
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
from ...schema import Each, Number, Record, Table, Text, Whole, check
from .claim import Claim, Setting

RUN, FAILURES, POSTPONED = "run.json", "failures.json", "postponed.json"
DATA = ("mnist", "cifar10", "an4", "fsdd", "text", "fewshot", "tiny-lm")
FORMAT = 1
CONTENT = Record(
    {"budget": Text(), "data": Each(Text()), "claims": Each(Text())},
    {"linnet": Text(), "started": Text(), "format": Whole()},
)
FAILED = Each(Record({"unit": Text(), "error": Text(), "keys": Each(Text())}, open=True))
LEFT = Table(Record({"seconds": Number(0), "minutes": Number(0)}))


@dataclass(frozen=True)
class Run:
    """The settings a folder was started with."""

    budget: str
    data: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    linnet: str = __version__
    started: str = ""
    format: int = FORMAT

    def setting(self, out: Path, **more: Any) -> Setting:
        return Setting(self.budget, out, frozenset(self.data), **more)


def available_data() -> tuple[str, ...]:
    """Return the names of the data sets on this machine."""
    return tuple(name for name in DATA if data_folder(name) is not None)


def begin(out: Path, budget: str, claims: Sequence[Claim], *, shipped: bool = False) -> Run:
    """Start or resume a folder for these claims and write run.json. shipped: use only the shipped data.

    The caller holds the folder's lock (linnet/lock.py) until the run ends.
    """
    names = [claim.name for claim in claims]
    if (out / RUN).exists():
        run = read_run(out)
        _check_same(run, out, budget, shipped)
        run = replace(run, claims=tuple(dict.fromkeys([*run.claims, *names])))
    else:
        _check_empty(out)
        _check_data(shipped)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        run = Run(budget, () if shipped else available_data(), tuple(names), started=started)
    out.mkdir(parents=True, exist_ok=True)
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        remove_torn(folder)
    with atomic(out / RUN) as file:
        file.write(json.dumps(asdict(run), indent=1).encode())
    return run


def read_run(out: Path) -> Run:
    """Return the settings of a folder; raise StateError unless it is the folder of a run of this version."""
    path = out / RUN
    if not path.is_file():
        raise StateError(f"{out} has no {RUN}; accepted: the --out folder of `linnet reproduce`")
    way_out = "its rows are untouched: start in another folder"
    content = check(read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError)
    run = Run(**{**content, "data": tuple(content["data"]), "claims": tuple(content["claims"])})
    if (run.format, run.linnet) != (FORMAT, __version__):
        raise StateError(
            f"{out} was written by linnet {run.linnet} and this is {__version__}; name another folder, or read it with "
            "the linnet that wrote it"
        )
    return run


def _check_same(run: Run, out: Path, budget: str, shipped: bool) -> None:
    if run.budget != budget:
        raise StateError(
            f"{out} holds a run of budget {run.budget}, and {budget} is requested; name another folder with --out, or "
            f"use --budget {run.budget}"
        )
    if shipped and run.data:
        raise StateError(f"{out} was started with {', '.join(run.data)}; leave --shipped out, or name another folder")
    gone = [name for name in run.data if data_folder(name) is None]
    if gone:
        raise StateError(
            f"{out} was started with the data set {gone[0]}, which is missing now; set LINNET_DATA to its folder, or "
            "name another folder with --out"
        )


def _check_data(shipped: bool) -> None:
    given = os.environ.get("LINNET_DATA")
    if given and not shipped and not Path(given).is_dir():
        raise StateError(
            f"LINNET_DATA is {given}, and there is no such folder; set it to the folder of the data sets, or use "
            "--shipped for the data that come with linnet"
        )


def _check_empty(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise StateError(f"{out} is a file; name a folder with --out")
    held = sorted(path.name for path in out.iterdir() if path.name != LOCK) if out.is_dir() else []
    if held:
        raise StateError(f"{out} holds {held[0]} but no {RUN}: it is not the folder of a run; name another with --out")


def write_failures(out: Path, failures: Iterable[dict[str, Any]]) -> None:
    """Write the failures of the last run, or remove the file if there are none."""
    _write(out / FAILURES, list(failures))


def read_failures(out: Path) -> list[dict[str, Any]]:
    """Return [{"unit", "error", "keys"}]; a damaged file is refused."""
    return _read(out / FAILURES, FAILED, "delete it: failed work is retried") or []


def write_postponed(out: Path, claims: Mapping[str, Mapping[str, float]]) -> None:
    """Write name -> {"seconds", "minutes"} of the claims without time, or remove the file if there are none."""
    _write(out / POSTPONED, dict(claims))


def read_postponed(out: Path) -> dict[str, dict[str, float]]:
    """Return what `write_postponed` wrote; a damaged file is refused."""
    return _read(out / POSTPONED, LEFT, "delete it: the same command continues") or {}


def _write(path: Path, records: Any) -> None:
    if records:
        with atomic(path) as file:
            file.write(json.dumps(records, indent=1).encode())
    else:
        path.unlink(missing_ok=True)


def _read(path: Path, accepted: Any, way_out: str) -> Any:
    if not path.is_file():
        return None
    return check(read_json(path, way_out, refuse=StateError), accepted, path, way_out, refuse=StateError)
