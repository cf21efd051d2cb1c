"""Random calls of every op, form, feature map and backend against float64: results, gradients, padding, causality.

    python -m tests.fuzz.ops --cases 100000 [--seed 0] [--workers 2] [--op linear_attention]
    python -m tests.fuzz.ops --seed 0 --case 4711            one case again, with its arguments

Options and output are those of long_run.py. A case depends on its seed and number alone, so the line printed for a
failing one repeats it anywhere. What counts as a failure is in measure.py; trial.py says how a case is run; the other
files draw the cases and hold the equations.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable

import torch

from tests.fuzz import linear, long_run, recurrent, rows, softmax
from tests.fuzz.long_run import Found, Job
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


def share(job: Job) -> tuple[Counter[str], list[Found]]:
    count, found = Counter[str](), []
    for case in job.cases:
        trial, name, wrong = run_case(job.seed, case, job.only)
        count[name] += 1
        if trial is not None and trial.words.get("backend") == "native":
            count[f"{name} with backend='native'"] += 1
        if wrong:
            found.append(Found(name, report(job.seed, case, job.only, trial, wrong)))
    return count, found


def main() -> int:
    parser = long_run.parser("Compare random calls of the ops with float64.", cases=2000)
    parser.add_argument("--op", choices=sorted(SUBJECTS), help="only this op; numbers then count its cases alone")
    given = parser.parse_args()
    if given.case is not None:
        torch.set_num_threads(1)
        trial, _, wrong = run_case(given.seed, given.case, given.op)
        print(report(given.seed, given.case, given.op, trial, wrong or ["holds"]))
        return bool(wrong)
    return long_run.run(share, given, given.op)


if __name__ == "__main__":
    sys.exit(main())
