"""Random calls of every op, form, feature map and back end against float64: results, gradients, padding, causality.

    python -m tests.fuzz.ops --cases 100000 [--seed 0] [--workers 2] [--op linear_attention]
    python -m tests.fuzz.ops --seed 0 --case 4711            one case again, with its arguments

A case hangs on its seed and number alone, so the line printed for a failing one repeats it anywhere. What counts as a
failure is in measure.py; trial.py says how a case is run; the other files draw the cases and hold the equations.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

import torch

from tests.fuzz import linear, recurrent, rows, softmax
from tests.fuzz.trial import Trial, check

SUBJECTS: dict[
    str, tuple[Callable[[random.Random, torch.Generator], Trial], int]
] = {  # and how many shares of all cases
    "linear_attention": (linear.trial, 10),
    "decayed_attention": (recurrent.decay_trial, 2),
    "delta_rule": (recurrent.delta_trial, 2),
    "wkv": (recurrent.wkv_trial, 2),
    "wkv7": (recurrent.wkv7_trial, 2),
    "selective_scan": (recurrent.scan_trial, 2),
    "softmax_attention": (softmax.softmax_trial, 2),
    "sliding_window": (softmax.window_trial, 2),
    "lsh_attention": (softmax.lsh_trial, 2),
    "short_conv": (rows.conv_trial, 2),
    "base_conv": (rows.base_trial, 1),
    "norm": (rows.norm_trial, 1),
    "mlp": (rows.mlp_trial, 1),
    "project": (rows.project_trial, 1),
    "cross_entropy": (rows.entropy_trial, 1),
}


def run_case(seed: int, case: int, only: str | None = None) -> tuple[Trial | None, str, list[str]]:
    """The trial, the op and what is wrong with it; an exception is wrong too."""
    rng, g = random.Random(f"{seed} {case}"), torch.Generator().manual_seed(1_000_003 * seed + case)
    names = [n for n, (_, share) in SUBJECTS.items() for _ in range(share)]
    name = rng.choice(names) if only is None else only
    trial = None
    try:
        trial = SUBJECTS[name][0](rng, g)
        return trial, name, check(trial, rng, g)
    except Exception:
        return trial, name, [traceback.format_exc(limit=-3)]


def report(seed: int, case: int, only: str | None, trial: Trial | None, found: list[str]) -> str:
    again = f"python -m tests.fuzz.ops --seed {seed} --case {case}" + (f" --op {only}" if only else "")
    words = "" if trial is None else ", ".join(f"{k}={v}" for k, v in trial.words.items())
    return "\n".join([again, f"    {words}", *(f"    {text}" for text in found)])


def run_share(seed: int, cases: range, only: str | None = None) -> tuple[Counter[str], list[str]]:
    """How many cases each op had, and a report of each that failed."""
    count: Counter[str] = Counter()
    failed = []
    for case in cases:
        trial, name, found = run_case(seed, case, only)
        count[name] += 1
        if found:
            failed.append(report(seed, case, only, trial, found))
    return count, failed


def _work(job: tuple[int, range, str | None]) -> tuple[Counter[str], list[str]]:
    torch.set_num_threads(1)
    return run_share(*job)


def _shares(args: argparse.Namespace) -> Iterator[tuple[Counter[str], list[str]]]:
    jobs = [(args.seed, range(i, min(i + 100, args.first + args.cases)), args.op)
            for i in range(args.first, args.first + args.cases, 100)]  # fmt: skip
    if args.workers < 2:
        yield from map(_work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        yield from pool.imap_unordered(_work, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random calls of the ops with float64.")
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first: a long run can be cut into parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one, with its arguments")
    parser.add_argument("--op", choices=sorted(SUBJECTS), help="only this op; numbers then count its cases alone")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    if args.case is not None:
        torch.set_num_threads(1)
        trial, _, found = run_case(args.seed, args.case, args.op)
        print(report(args.seed, args.case, args.op, trial, found or ["holds"]))
        return bool(found)
    began, total, failures = time.monotonic(), Counter[str](), 0
    for count, failed in _shares(args):
        total += count
        failures += len(failed)
        if failed:
            print("\n".join(failed), flush=True)
    each = ", ".join(f"{name} {n:,}" for name, n in sorted(total.items()))
    print(
        f"{total.total():,} cases of seed {args.seed} in {time.monotonic() - began:,.0f} s, {failures} failed: {each}"
    )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
