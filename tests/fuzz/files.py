"""Fuzz every file that linnet reads: damage one, read it, and see that it is refused in a sentence or means the same.

    python -m tests.fuzz.files --cases 100000 --seed 1 [--workers 2] [--only KIND] [--case N]

Options and output are those of long_run.py. A case is a number: the seed and the number give the kind of file, the
mutation and every byte of it. Good is: refused with a ValueError or OSError of one line that names the file; or read to
the same content as before. Where a format has no checksum (`sealed` False) another content is good as well, if it is
one that could have been saved. Anything else is a finding: another exception, a silent difference, more than 1 GB of
memory, more than 5 s.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz import long_run
from tests.fuzz.long_run import Found, Job

MOST_SECONDS, MOST_BYTES = 5.0, 1 << 30
LONGEST = 2000  # letters of a sentence

Mutator = Callable[[random.Random, bytes], tuple[str, bytes]]


class Kind(NamedTuple):
    """One kind of file or folder."""

    make: Callable[[Path], None]  # writes a healthy one
    parts: Mapping[str, tuple[Mutator, ...]]  # file in the folder -> what may be done to it
    load: Callable[[Path], Any]  # reads it; equal values mean the same content
    sealed: bool = False  # it has a checksum: no other content may come out
    reseal: Callable[[Path], None] | None = None  # puts checksums right again, for half of the cases


class Finding(NamedTuple):
    """What should not happen, and how to have it again."""

    case: int
    kind: str
    what: str  # the mutation
    problem: str

    def __str__(self) -> str:
        return f"--only {self.kind!r} --case {self.case}: {self.what}: {self.problem}"


class Bench:
    """Healthy files of all kinds in a folder, and what they mean."""

    def __init__(self, folder: Path, kinds: Mapping[str, Kind]) -> None:
        self.folder, self.kinds = folder, kinds
        self.before: dict[str, Any] = {}

    def open(self, name: str) -> Path:
        """The folder of a kind, with its healthy files."""
        place = self.folder / name.replace(" ", "-")
        if name not in self.before:
            place.mkdir()
            self.kinds[name].make(place)
            self.before[name] = self.kinds[name].load(place)
        return place

    def run(self, name: str, seed: int, case: int) -> tuple[str, Finding | None]:
        """("refused", "same" or "other", None), or what was found."""
        rng, kind = random.Random(f"{seed}/{name}/{case}"), self.kinds[name]
        place = self.open(name)
        healthy = {part: (place / part).read_bytes() for part in kind.parts}
        part = rng.choice(sorted(kind.parts))
        what, data = rng.choice(kind.parts[part])(rng, healthy[part])
        what, sealed = f"{part}: {what}", kind.sealed
        try:
            (place / part).write_bytes(data)
            if kind.reseal is not None and rng.random() < 0.5:
                what, sealed = f"{what}, resealed", False
                try:
                    kind.reseal(place)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    sealed = kind.sealed  # there is nothing left to put a checksum on
            outcome = _observe(lambda: kind.load(place), place)
        finally:
            for file, content in healthy.items():
                (place / file).write_bytes(content)
        if isinstance(outcome, str):
            if outcome == "refused":
                return outcome, None
            return "found", Finding(case, name, what, outcome)
        same = outcome[0] == self.before[name]
        if not same and sealed:
            return "found", Finding(case, name, what, "another content without a word")
        return ("same" if same else "other"), None


def _observe(load: Callable[[], Any], place: Path) -> Any:
    """(value,), "refused", or what is wrong in words."""
    _reset_peak()
    memory, began = _peak(), time.process_time()
    outcome: Any
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = (load(),)
    except (ValueError, OSError) as error:
        outcome = _sentence(error, place)
    except Exception as error:
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at else ""
        outcome = f"{type(error).__name__} at {where}: {str(error)[:200]}"
    took, grew = time.process_time() - began, _peak() - memory
    if took > MOST_SECONDS:
        return f"{took:.1f} s ({str(outcome)[:100]})"
    return f"{grew / 1e9:.1f} GB ({str(outcome)[:100]})" if grew > MOST_BYTES else outcome


def _sentence(error: Exception, place: Path) -> str:
    text = str(error)
    named = str(place) in text or any(file.name in text for file in place.rglob("*"))
    if isinstance(error, UnicodeError):
        return f"a raw {type(error).__name__}: {text[:200]}"
    if not text or "\n" in text.strip() or len(text) > LONGEST or "Traceback" in text:
        return f"{type(error).__name__} is not one sentence: {text[:300]!r}"
    return "refused" if named else f"{type(error).__name__} names no file: {text[:300]!r}"


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    """Most bytes resident since the last reset; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def fuzz(bench: Bench, seed: int, cases: range, only: str | None = None) -> Iterator[tuple[str, str, Finding | None]]:
    """(kind, outcome, finding) of every case; without `only` the kinds take turns."""
    names = [only] if only else sorted(bench.kinds)
    for case in cases:
        name = names[case % len(names)]
        outcome, finding = bench.run(name, seed, case)
        yield name, outcome, finding


def every_kind() -> dict[str, Kind]:
    """The kinds of the core, and those of the laboratory where it is installed."""
    homes = ["tests.fuzz.file_kinds", *(["tests.labs.core.file_kinds"] if find_spec("linnet.labs") else [])]
    return {name: kind for home in homes for name, kind in import_module(home).KINDS.items()}


@cache
def bench(folder: str) -> Bench:
    """One for each process, in a folder of its own."""
    place = Path(folder, str(os.getpid()))
    place.mkdir()
    return Bench(place, every_kind())


def share(job: Job) -> tuple[Counter[str], list[Found]]:
    count, found = Counter[str](), []
    for name, outcome, finding in fuzz(bench(job.folder), job.seed, job.cases, job.only):
        count[f"{name}: {outcome}"] += 1
        if finding is not None:
            again = f"python -m tests.fuzz.files --seed {job.seed} {finding}"
            found.append(Found(f"{name} {finding.problem[:60]}", again))
    return count, found


def main() -> int:
    parser = long_run.parser(__doc__.splitlines()[0], cases=1000)
    parser.add_argument("--only", choices=sorted(every_kind()), help="one kind of file; without it they take turns")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return long_run.run(share, given, given.only, folder)


if __name__ == "__main__":
    sys.exit(main())
