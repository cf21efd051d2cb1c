"""The frame of a fuzzer's command: many cases in several processes, what is done, when it ends, and what failed.

    shares of 100 cases -> processes -> counts and findings in the order of the cases

Every line with a finding holds the command that repeats it. The cases before the number that progress prints are done,
so `--first N` continues a run that was stopped. The exit status is 1 if anything was found, a dead process included.
"""

from __future__ import annotations

import argparse
import faulthandler
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

SHARE = 100  # cases
EVERY = 30.0  # seconds between two lines of progress
SHOWN = 5  # findings of one sort


class Job(NamedTuple):
    seed: int
    cases: range
    only: str | None  # one op, or one kind of file
    folder: str  # for files, removed at the end


class Found(NamedTuple):
    sort: str  # findings of one sort are most often one defect
    text: str  # with the command that repeats it


Share = Callable[[Job], "tuple[Counter[str], list[Found]]"]


def parser(text: str, cases: int) -> argparse.ArgumentParser:
    """The options that every fuzzer has."""
    options = argparse.ArgumentParser(description=text)
    options.add_argument("--cases", type=int, default=cases, help="how many")
    options.add_argument("--first", type=int, default=0, help="number of the first: continues a run that was stopped")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--case", type=int, help="only this one")
    options.add_argument("--workers", type=int, default=1, help="processes")
    return options


def run(share: Share, given: argparse.Namespace, only: str | None = None, folder: str = "") -> int:
    """Run all cases, print what is found and the counts; the exit status."""
    cases = range(given.first, given.first + given.cases) if given.case is None else range(given.case, given.case + 1)
    jobs = [Job(given.seed, cases[i : i + SHARE], only, folder) for i in range(0, len(cases), SHARE)]
    report = Report(given.seed, cases)
    try:
        for job, (count, found) in zip(jobs, _results(share, jobs, given.workers), strict=True):
            report.add(job, count, found)
    except BrokenProcessPool:
        lost = cases[report.done : report.done + SHARE * 2 * given.workers]
        again = f"--seed {given.seed} --first {lost[0]} --cases {len(lost)} --workers 1"
        report.show(Found("crash", f"a process died in cases {lost[0]} to {lost[-1]}; repeat with {again}"))
    except KeyboardInterrupt:
        report.end("stopped")
        return 130
    report.end("all" if report.done == len(cases) else "ended early")
    return bool(report.sorts)


def _begin() -> None:
    torch.set_num_threads(1)
    faulthandler.enable()  # a crash prints the line of Python that it happened in


def _results(share: Share, jobs: list[Job], workers: int) -> Iterator[tuple[Counter[str], list[Found]]]:
    """In the order of the jobs; only a few wait at a time, so that a stopped run stops."""
    if workers < 2:
        torch.set_num_threads(1)
        yield from map(share, jobs)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin) as pool:
        waiting: list[Future[Any]] = []
        for i in range(len(jobs) + 2 * workers):
            if i < len(jobs):
                waiting.append(pool.submit(share, jobs[i]))
            if waiting and i >= 2 * workers - 1:
                yield waiting.pop(0).result()


class Report:
    """What was done and found so far."""

    def __init__(self, seed: int, cases: range) -> None:
        self.seed, self.cases, self.done = seed, cases, 0
        self.count, self.sorts = Counter[str](), Counter[str]()
        self.began = self.printed = time.monotonic()
        print(f"{len(cases):,} cases of seed {seed} from {cases.start}", flush=True)

    def add(self, job: Job, count: Counter[str], found: list[Found]) -> None:
        self.done += len(job.cases)
        self.count += count
        for one in found:
            self.show(one)
        now = time.monotonic()
        if now - self.printed >= EVERY and self.done < len(self.cases):
            self.printed, left = now, (now - self.began) / self.done * (len(self.cases) - self.done)
            done = f"{self.done:,} of {len(self.cases):,} cases, {self.sorts.total()} findings"
            again = f"--seed {self.seed} --first {self.next}"
            print(f"{done}, about {left / 60:,.0f} minutes left; to continue from here: {again}", flush=True)

    @property
    def next(self) -> int:
        return self.cases.start + self.done

    def show(self, found: Found) -> None:
        self.sorts[found.sort] += 1
        if self.sorts[found.sort] <= SHOWN:
            print(found.text, flush=True)

    def end(self, how: str) -> None:
        for name, number in sorted(self.count.items()):
            print(f"    {name:40} {number:8,}")
        done = f"{self.done:,} cases of seed {self.seed} in {time.monotonic() - self.began:,.0f} s"
        found = f"{self.sorts.total()} findings of {len(self.sorts)} sorts"
        print(f"{how}: {done}, {found}; next is --first {self.next}", flush=True)
