"""T13: from how many tokens is linear attention no slower than softmax, and what do short sequences cost in quality?

    ratio[N] = time of linear attention (elu + 1) / time of softmax (torch's fused one)       N = 8 ... 512 tokens

The crossover of the operation decides (crossover.py defines it). A training step of a small character model, and its
quality at equal steps, are reported with it. Katharopoulos et al. 2020 (arXiv:2006.16236) show no sequence below 512
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from ...bench.train import subject
from ...core.claim import (
    NO,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Number,
    Regime,
    Row,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    mean,
    untested,
)
from ...core.intervals import Interval, interval, median_interval
from ...core.licence import quiet
from .crossover import (
    LENGTHS,
    ROUNDS,
    SHAPE,
    SPEED,
    TOKENS,
    crossover,
    crossover_number,
    crossover_unit,
    deciding,
    in_words,
    ratios_of,
    rounds_of,
    timed,
)
from .variants import LOWER, WORDS, variant, variant_unit
from .verdict_logic import below, differences, shown

FROM = 64  # tokens: the statement begins here
SHORT = 128  # tokens: the longest of the quality runs
MODEL: dict[str, int] = {"n_layers": 2, "d_model": 128, "n_heads": 4}


def units(setting: Setting) -> list[Unit]:
    budget = setting.budget
    if budget == "smoke":
        speed = [crossover_unit(budget), timed("step", step_calls, MODEL, [8, 16], 64, ROUNDS[budget], 1, 0.3)]
        return [*speed, *(variant_unit(quality("text", one, 8, 0, 2), 0.2) for one in ("elu", "softmax"))]
    step = timed("step", step_calls, MODEL, LENGTHS, 1024, ROUNDS[budget], 2, 0.8 * ROUNDS[budget])
    speed = [crossover_unit(budget), step]
    if budget != "quick":
        speed.append(crossover_unit(budget, threads=1))
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


def quality(task: str, mixer: str, length: int, seed: int, steps: int) -> Config:
    """Return a variant with 1,024 tokens per step."""
    return variant(task, mixer, length=length, batch_size=1024 // length, seed=seed, steps=steps)


def step_calls(config: Config, length: int) -> dict[str, Callable[[], Any]]:
    """Return a training step of the two models."""
    changes = {name: config[name] for name in MODEL}
    variants = {"linear": "elu", "softmax": "softmax"}
    return {name: subject(mixer, length, config["tokens"], **changes).step for name, mixer in variants.items()}


def read(rows: Sequence[Row]) -> Finding:
    speed = {(r["config"]["what"], r["config"]["threads"]): r for r in rows if r["config"]["experiment"] == SPEED}
    most = max((threads for _, threads in speed), default=0)
    row = deciding(rows)
    if row is None or not {("op", most), ("step", most)} <= set(speed):
        return untested("the timings of the operation or of the training step are missing")
    losses, lengths = lost(rows), row["config"]["lengths"]
    if FROM not in lengths:
        return untested(f"{FROM} tokens were not timed, and the statement begins there")
    cross = crossover(row)
    there = median_interval(ratios_of(row)[FROM])
    sentence = (
        f"One operation, forward and backward, is faster with linear attention {in_words(cross, lengths)}; at {FROM} "
        f"tokens it takes {figures(there.mean)} times as long as fused softmax"
    )
    control = quiet(rounds_of(row))
    heads, width = row["config"]["heads"], row["config"]["head_dim"]
    return Finding(
        Evidence(below(cross, FROM), REGIME, (control,), cross.seeds, "rounds"),
        sentence,
        [crossover_number(row), *speeds(speed, most), *quality_numbers(rows, losses)],
        f"{heads} heads of width {width}, {lengths[0]} to {lengths[-1]} tokens, {most} threads, {cross.seeds} rounds",
        meaning(cross, lengths),
        [speed_table(speed), quality_table(rows, losses)],
        charts(speed),
    )


def lost(rows: Sequence[Row]) -> dict[tuple[str, int], Interval]:
    """Return (task, length) -> what linear lacks against softmax: share of answers, or additional bits."""
    losses = {}
    for task, n in sorted({(r["config"]["task"], r["config"]["length"]) for r in rows if "task" in r["config"]}):
        linear, softmax = scores(rows, task, n)
        if set(linear) & set(softmax):
            losses[task, n] = interval(differences(linear, softmax) if task in LOWER else differences(softmax, linear))
    return losses


def scores(rows: Sequence[Row], task: str, length: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return seed -> score of linear attention and of softmax."""
    linear, softmax = (by_seed(rows, "score", task=task, length=length, mixer=one) for one in ("elu", "softmax"))
    return linear, softmax


def speeds(speed: Mapping[tuple[str, int], Row], threads: int) -> list[Number]:
    names = {"op": "time of the operation, linear / fused softmax", "step": "time of a training step, linear / softmax"}
    ratios = {what: ratios_of(speed[what, threads]) for what in names}
    wanted = [("op", FROM), ("op", min(ratios["op"])), ("step", min(ratios["step"])), ("step", SHORT)]
    return [
        shown(f"{names[what]}, {n} tokens", median_interval(ratios[what][n]), "rounds")
        for what, n in wanted
        if n in ratios[what]
    ]


def quality_numbers(rows: Sequence[Row], losses: Mapping[tuple[str, int], Interval]) -> list[Number]:
    """Return both scores of every task at the length where linear attention does worst."""
    worst = {task: max((c for c in losses if c[0] == task), key=lambda c: losses[c].mean) for task, _ in losses}
    lines = []
    for task, cell in worst.items():
        for name, values in zip(("linear", "softmax"), scores(rows, *cell), strict=True):
            what = f"{WORDS[task]}, {name}, at the worst length for linear ({cell[1]} tokens)"
            lines.append(shown(what, interval(list(values.values()))))
    return lines


def speed_table(speed: Mapping[tuple[str, int], Row]) -> Table:
    lines = [
        (what, str(threads), f"{n:,}", str(median_interval(values)))
        for (what, threads), row in sorted(speed.items())
        for n, values in ratios_of(row).items()
    ]
    return Table(("of", "threads", "tokens", "linear / softmax"), lines, "time of linear attention over softmax")


def quality_table(rows: Sequence[Row], losses: Mapping[tuple[str, int], Interval]) -> Table:
    lines = []
    for (task, n), loss in losses.items():
        means = [mean(values) for values in scores(rows, task, n)]
        lines.append((WORDS[task], f"{n:,}", *map(figures, means), str(loss)))
    return Table(("score", "tokens", "linear", "softmax", "linear is worse by"), lines, "quality at equal steps")


def charts(speed: Mapping[tuple[str, int], Row]) -> list[Chart]:
    series = {}
    for (what, threads), row in sorted(speed.items()):
        medians = {n: median_interval(values) for n, values in ratios_of(row).items()}
        name = "operation" if what == "op" else "training step"
        label = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
        series[label] = [(n, v.mean, v.low, v.high) for n, v in medians.items()]
    caption = "above 1 softmax is faster"
    return [Chart("linear over softmax, by length", "tokens", "time ratio", series, log_x=True, caption=caption)]


def meaning(cross: Interval, lengths: Sequence[int]) -> str:
    if cross.mean == inf:
        return f"Up to {max(lengths):,} tokens use softmax for speed on this machine."
    if cross.mean <= min(lengths):
        return f"From {min(lengths)} tokens on, the length is no reason to prefer softmax for speed on this machine."
    return (
        f"For speed alone use softmax below about {cross.mean:.0f} tokens on this machine and linear attention above. "
        "In a whole training step of a small model the two differ by less, since the rest of the model is the same."
    )


REGIME = Regime("lengths below the 512 tokens of the paper, on a CPU", "8 to 512 tokens, on a CPU")
CLAIM = Claim(
    name="short",
    number="T13",
    paper="open",
    statement=f"Linear attention is no slower than softmax already from {FROM} tokens on.",
    source="Reviews of the paper ask about short sequences, which it does not study; it gives no number below 512 "
    "tokens, and no length at which the two are equal.",
    rule="The crossover is the fewest tokens from which one causal attention operation (forward and backward, "
    f"{SHAPE['heads']} heads of width {SHAPE['head_dim']}, {TOKENS:,} tokens per batch) is faster with linear "
    "attention than with torch's fused softmax, and stays faster at every longer length timed. Yes if the interval of "
    f"its median over the rounds ends at {FROM} tokens or below, no if it begins above; open between. Control: the "
    "machine was quiet. A training step and the quality at equal steps are reported, not judged.",
    answers={YES: f"Yes, it overtakes at {FROM} tokens or fewer", NO: f"No, softmax is still faster at {FROM} tokens"},
    change=f"Rounds on a quiet machine whose crossover has an interval on the other side of {FROM} tokens.",
    units=units,
    read=read,
)
