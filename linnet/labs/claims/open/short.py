"""T13: what does linear attention cost, in speed and in quality, where sequences are short?

    ratio[N] = time of linear attention (elu + 1) / time of softmax (torch's fused one)       N = 8 ... 512 tokens

A batch has the same number of tokens at every N, forward and backward: of the op alone, and of a training step of a
small character model. Rounds take turns, so that both sides of a ratio see the same machine. Softmax does N / 2
products per token and linear attention a fixed number; below the N where they cross, softmax pays. Katharopoulos et al.
2020 (arXiv:2006.16236) show no sequence below 512 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import exp, log
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from ...bench import timing
from ...bench.checks import cores
from ...bench.competitors import SDPA, Competitor, ours
from ...bench.inputs import Inputs
from ...bench.race import call_of
from ...bench.sizes import BOTH
from ...bench.train import subject
from ...core.claim import (
    Chart,
    Claim,
    Config,
    Finding,
    Row,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    mean,
    rounded,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from .variants import LOWER, WORDS, variant, variant_unit
from .verdict_logic import FEWEST, below, clauses, differences, every, middle, outcome, shown

SPEED = "short speed"
SHORT = 128  # tokens: the question ends here, and the longer ones show where the lines cross
LENGTHS = [8, 16, 32, 64, 128, 256, 512]
SLOWER = 1.05  # times softmax that a step may take
WORSE = {"text": 0.02, "recall": 0.02}  # share of the bits, and share of the answers, that may be lost
MODEL: dict[str, int] = {"n_layers": 2, "d_model": 128, "n_heads": 4}
OP: dict[str, int] = {"heads": 4, "head_dim": 64}


def units(setting: Setting) -> list[Unit]:
    budget = setting.budget
    if budget == "smoke":
        speed = [timed(what, [8, 16], 64, 3, 1, 0.3) for what in ("op", "step")]
        return [*speed, *(variant_unit(quality("text", one, 8, 0, 2), 0.2) for one in ("elu", "softmax"))]
    rounds = {"quick": 7, "hour": 15, "paper": 31}[budget]
    speed = [timed("op", LENGTHS, 4096, rounds, 2, 0.4 * rounds), timed("step", LENGTHS, 1024, rounds, 2, 0.8 * rounds)]
    if budget != "quick":
        speed.append(timed("op", LENGTHS, 4096, rounds, 1, 0.7 * rounds))
    plans = {
        "quick": [*(("text", n, 80) for n in (8, 128)), ("recall", 8, 150), ("recall", 16, 200)],
        "hour": [*(("text", n, 250) for n in LENGTHS[:5]), *(("recall", n, 200 + 12 * n) for n in LENGTHS[:3])],
        "paper": [(task, n, 1500) for task in ("text", "recall") for n in LENGTHS[:5]],
    }[budget]
    trained = [
        variant_unit(quality(task, one, n, seed, steps), 0.012 * steps)
        for task, n, steps in plans
        for seed in range(5 if budget == "paper" else 3)
        for one in ("elu", "softmax")
    ]
    return [*speed, *trained]


def timed(what: str, lengths: list[int], tokens: int, rounds: int, threads: int, seconds: float) -> Unit:
    sizes = OP if what == "op" else MODEL
    config = {"experiment": SPEED, "what": what, "lengths": lengths, "tokens": tokens, "rounds": rounds, **sizes}
    return unit(time_them, {**config, "threads": threads}, seconds, alone=True)


def quality(task: str, mixer: str, length: int, seed: int, steps: int) -> Config:
    """Return a variant with 1,024 tokens per step."""
    return variant(task, mixer, length=length, batch_size=1024 // length, seed=seed, steps=steps)


def time_them(config: Config) -> dict[str, Any]:
    """Return {"linear", "softmax"}: for each length the seconds of every round."""
    torch.set_num_threads(min(config["threads"], cores()))
    calls: dict[str, Callable[[], Any]] = {}
    for length in config["lengths"]:
        calls |= {f"{name} {length}": call for name, call in CALLS[config["what"]](config, length).items()}
    times = timing.interleave(calls, config["rounds"], warm=1)
    return {
        name: [[rounded(seconds) for seconds in times[f"{name} {length}"]] for length in config["lengths"]]
        for name in ("linear", "softmax")
    }


def op_calls(config: Config, length: int) -> dict[str, Callable[[], Any]]:
    """Return forward and backward of the two ops, each in its fastest layout."""
    width = config["head_dim"]
    given = Inputs(config["tokens"] // length, length, config["heads"], width, width)
    softmax = Competitor(SDPA, "", partial(scaled_dot_product_attention, is_causal=True))
    linear = next(one for one in ours("elu") if one.run is not None)  # native if it is built
    return {"linear": call_of(linear, given, BOTH), "softmax": call_of(softmax, given, BOTH)}


def step_calls(config: Config, length: int) -> dict[str, Callable[[], Any]]:
    """Return a training step of the two models."""
    changes = {name: config[name] for name in MODEL}
    variants = {"linear": "elu", "softmax": "softmax"}
    return {name: subject(mixer, length, config["tokens"], **changes).step for name, mixer in variants.items()}


CALLS: dict[str, Callable[[Config, int], dict[str, Callable[[], Any]]]] = {"op": op_calls, "step": step_calls}


def read(rows: Sequence[Row]) -> Finding:
    speed = {(r["config"]["what"], r["config"]["threads"]): r for r in rows if r["config"]["experiment"] == SPEED}
    most = max((threads for _, threads in speed), default=0)
    if not {("op", most), ("step", most)} <= set(speed):
        return untested("the timings of the op or of the training step are missing")
    ratios = {what: ratios_of(speed[what, most]) for what in ("op", "step")}
    losses = lost(rows)
    fewest = min([values.seeds for values in losses.values()], default=0)
    if fewest < FEWEST or min(len(v) for v in ratios["op"].values()) < FEWEST:
        return untested(f"the arms have {fewest} seeds in common; the rule wants {FEWEST} or more, and rounds alike")
    brief = {n: middle(values) for n, values in ratios["step"].items() if n <= SHORT}
    parts = {
        f"a training step takes at most {SLOWER:g} times that of softmax at {min(brief)} to {max(brief)} tokens": every(
            [below(gap, SLOWER) for gap in brief.values()]
        ),
        "quality at equal steps is within 2 % of softmax": every(
            [below(gap, WORSE[task]) for (task, _), gap in losses.items()]
        ),
    }
    cross = middle([crossing(ratios["op"], i) for i in range(len(next(iter(ratios["op"].values()))))])
    sentence = f"{clauses(parts)}. The op is faster than softmax from about {cross.mean:.0f} tokens on."
    numbers = [
        shown(f"tokens from which the linear op is faster than fused softmax, {most} threads", cross, "rounds"),
        *speeds(ratios),
        *quality_numbers(losses),
    ]
    tables = [speed_table(speed), quality_table(rows, losses)]
    return Finding(outcome(parts), sentence, numbers, meaning(cross, brief, losses), tables, charts(speed))


def ratios_of(row: Row) -> dict[int, list[float]]:
    """Return length -> linear / softmax of every round."""
    pairs = zip(row["config"]["lengths"], row["metrics"]["linear"], row["metrics"]["softmax"], strict=True)
    return {n: [a / b for a, b in zip(linear, softmax, strict=True)] for n, linear, softmax in pairs}


def crossing(ratios: Mapping[int, Sequence[float]], turn: int) -> float:
    """Return the length above which this round's ratio stays below 1, interpolated in logarithms; ends are bounds."""
    lengths = sorted(ratios)
    slow = [n for n in lengths if ratios[n][turn] >= 1]
    if not slow or slow[-1] == lengths[-1]:
        return float(lengths[-1] if slow else lengths[0])
    low, high = slow[-1], lengths[lengths.index(slow[-1]) + 1]
    at = log(ratios[low][turn]) / (log(ratios[low][turn]) - log(ratios[high][turn]))
    return exp(log(low) + at * (log(high) - log(low)))


def lost(rows: Sequence[Row]) -> dict[tuple[str, int], Interval]:
    """Return (task, length) -> what linear loses to softmax: share of answers, or extra bits relative to softmax's."""
    losses = {}
    for task, n in sorted({(r["config"]["task"], r["config"]["length"]) for r in rows if "task" in r["config"]}):
        linear, softmax = (by_seed(rows, "score", task=task, length=n, mixer=one) for one in ("elu", "softmax"))
        if set(linear) & set(softmax):
            gap = differences(linear, softmax, mean(softmax)) if task in LOWER else differences(softmax, linear)
            losses[task, n] = interval(gap)
    return losses


def speeds(ratios: Mapping[str, Mapping[int, list[float]]]) -> list[Any]:
    names = {"op": "time of the linear op over fused softmax", "step": "time of a training step, linear over softmax"}
    wanted = [("op", min(ratios["op"])), ("step", min(ratios["step"])), ("step", nearest(ratios["step"], SHORT))]
    return [shown(f"{names[what]}, {n} tokens", middle(ratios[what][n]), "rounds") for what, n in wanted]


def nearest(ratios: Mapping[int, Any], length: int) -> int:
    return max(n for n in ratios if n <= length)


def quality_numbers(losses: Mapping[tuple[str, int], Interval]) -> list[Any]:
    """Return the number of the worst length of every task."""
    worst = {task: max((c for c in losses if c[0] == task), key=lambda c: losses[c].mean) for task, _ in losses}
    titles = {"text": "bits per character that linear loses to softmax, as a share", "recall": "recall lost to softmax"}
    return [shown(f"{titles[task]}, worst length ({cell[1]} tokens)", losses[cell]) for task, cell in worst.items()]


def speed_table(speed: Mapping[tuple[str, int], Row]) -> Table:
    lines = [
        (what, str(threads), f"{n:,}", str(middle(values)))
        for (what, threads), row in sorted(speed.items())
        for n, values in ratios_of(row).items()
    ]
    return Table(("of", "threads", "tokens", "linear / softmax"), lines, "time of linear attention over softmax")


def quality_table(rows: Sequence[Row], losses: Mapping[tuple[str, int], Interval]) -> Table:
    lines = []
    for (task, n), loss in losses.items():
        means = [mean(by_seed(rows, "score", task=task, length=n, mixer=one)) for one in ("elu", "softmax")]
        lines.append((WORDS[task], f"{n:,}", *map(figures, means), str(loss)))
    return Table(("score", "tokens", "linear", "softmax", "lost by linear"), lines, "quality at equal steps")


def charts(speed: Mapping[tuple[str, int], Row]) -> list[Chart]:
    series = {}
    for (what, threads), row in sorted(speed.items()):
        medians = {n: middle(values) for n, values in ratios_of(row).items()}
        name = "op" if what == "op" else "training step"
        series[f"{name}, {threads} threads"] = [(n, v.mean, v.low, v.high) for n, v in medians.items()]
    caption = "above 1 softmax is faster"
    return [Chart("linear over softmax, by length", "tokens", "time ratio", series, log_x=True, caption=caption)]


def meaning(cross: Interval, brief: Mapping[int, Interval], losses: Mapping[tuple[str, int], Interval]) -> str:
    slow = max(brief.values(), key=lambda one: one.mean)
    worst = max(losses, key=lambda cell: losses[cell].mean - WORSE[cell[0]])
    quality_said = (
        f"quality suffers most in {worst[0]} at {worst[1]} tokens"
        if losses[worst].low > WORSE[worst[0]]
        else "quality is not lost to speak of"
    )
    return (
        f"Below about {cross.mean:.0f} tokens use softmax for speed on this machine; a whole training step then "
        f"takes up to {figures(slow.mean)} times as long with linear attention, since the rest of the model is the "
        f"same. At these lengths {quality_said}."
    )


CLAIM = Claim(
    name="short",
    number="T13",
    paper="open",
    question="Is linear attention worth having when sequences are short, from 8 tokens up?",
    statement="Reviews of the paper ask about short sequences, which it does not study; it gives no number below 512 "
    "tokens. The hopeful expectation is that nothing is lost on them: not in speed, not in quality.",
    rule="Medians of rounds and means of seeds, 95 % intervals. Confirmed if from 8 to "
    f"{SHORT} tokens a training step with linear attention takes at most {SLOWER:g} times that of softmax, and at "
    "equal steps it needs at most 2 % more bits per character and misses at most 0.02 of the recalled values; refuted "
    "if one of these is exceeded with its whole interval; otherwise unclear.",
    units=units,
    read=read,
)
