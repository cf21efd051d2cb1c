"""T14: does linear attention carry over to cross attention, to both directions, and to hybrids with a window?

    cross       encoder-decoder that writes a word backwards; the two arms differ in the cross attention alone
    decoding    time of a decoded token by the length of its source: linear keeps sums, softmax all keys and values
    both ways   recall with the questions before the pairs, bidirectional, beside the same task the usual way round
    hybrid      recall (copy) by a window of 16 tokens and then elu: share of elu's gap to softmax that is recovered

Katharopoulos et al. 2020 (arXiv:2006.16236) use self attention alone; a review asks whether the rest works too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...recall.stats import Interval, interval
from ..claim import Chart, Claim, Finding, Row, Setting, Table, Unit, by_seed, mean, number, unit, untested
from .arms import arm, arm_unit
from .cross import MIXERS, NAMES, columns, decode_table, grows, run_cross, time_decoding
from .parts import FEWEST, OPEN, above, below, differences, every, middle, outcome, shown, spelled

CROSS, DECODE = "cross", "cross decode"
SLOWER = 1.1  # times a token after the shortest source that one after the longest may take
MOST = 0.5  # of the gap, which "most of it" means
GAP = 0.05  # accuracy that softmax must be ahead of linear for a share of it to mean anything
WINDOW = 16
SYMBOLS = 10  # of the copy task: one in so many is right by guessing
BOTH_WAYS: dict[str, Any] = {"length": 24, "lr": 2e-2}
FAR: dict[str, Any] = {"length": 48, "pairs": 4, "power": 1.0, "lr": 2e-2, "batch_size": 32}  # few within the window
COPY: dict[str, Any] = {"length": 64, "d_model": 32, "lr": 1e-2}
SOURCES = [64, 512, 4096]
# lengths and steps of cross attention, steps of the others (0: none), sources and rounds of the timing
PLANS: dict[str, dict[str, Any]] = {
    "smoke": {"cross": [(8, 2)], "both": 2, "recall": 2, "copy": 0, "sources": [8, 64], "rounds": 3},
    "quick": {"cross": [(8, 150), (16, 150)], "both": 250, "recall": 200, "copy": 0, "sources": SOURCES, "rounds": 51},
    "hour": {
        "cross": [(16, 400), (32, 400)], "both": 400, "recall": 800, "copy": 500, "sources": SOURCES, "rounds": 151,
    },
    "paper": {
        "cross": [(n, 4000) for n in (16, 32, 64)], "both": 4000, "recall": 8000, "copy": 8000,
        "sources": [*SOURCES, 32_768], "rounds": 301,
    },
}  # fmt: skip


def units(setting: Setting) -> list[Unit]:
    seeds, plan = range({"smoke": 1, "paper": 5}.get(setting.budget, 3)), PLANS[setting.budget]
    found = [
        unit(
            run_cross, {"experiment": CROSS, "mixer": one, "length": n, "steps": steps, "seed": seed}, 6e-4 * n * steps
        )
        for n, steps in plan["cross"]
        for seed in seeds
        for one in MIXERS
    ]
    for seed in seeds:
        both = [{}, {"causal": False}]
        arms = [arm("recall", one, **BOTH_WAYS, **way, seed=seed, steps=plan["both"]) for way in both for one in MIXERS]
        arms += [arm("recall", **how, **FAR, seed=seed, steps=plan["recall"]) for how in hybrids("conv")]
        if plan["copy"]:
            arms += [arm("copy", **how, **COPY, seed=seed, steps=plan["copy"]) for how in hybrids()]
        found += [arm_unit(config, (0.02 if config["task"] == "copy" else 0.008) * config["steps"]) for config in arms]
    decode: dict[str, Any] = {
        "experiment": DECODE,
        "sources": plan["sources"],
        "rounds": plan["rounds"],
        "d_model": 128,
        "heads": 4,
    }
    decode["threads"] = 1  # one token of one sequence has no work for two
    return [unit(time_decoding, decode, 0.08 * plan["rounds"], alone=True), *found]


def hybrids(*first: str) -> list[dict[str, Any]]:
    """Two layers each, after a convolution where recall needs one: linear, softmax, and a window before linear."""
    pure: list[dict[str, Any]] = [{"mixer": [*first, one, one]} for one in MIXERS]
    return [*pure, {"mixer": [*first, "window", "elu"], "window": WINDOW}]


def read(rows: Sequence[Row]) -> Finding:
    timed = [row for row in rows if row["config"]["experiment"] == DECODE]
    if not timed:
        return untested("the timing of decoding is missing")
    cross, ways, hybrid = cross_scores(rows), both_ways(rows), hybrid_scores(rows)
    groups = [*cross.values(), *ways.values(), *hybrid.values()]
    fewest = min((len(values) for group in groups for values in group.values()), default=0)
    if fewest < FEWEST or not (cross and hybrid and len(ways) == 2):
        return untested(f"some arm has {fewest} seeds, or none has run; the rule wants {FEWEST} or more of each")
    growth = {name: grows(timed[0], name) for name in NAMES.values()}
    shares = {task: recovered(group, guessed(rows, task)) for task, group in hybrid.items()}
    parts = {
        "with linear cross attention a decoded token costs the same after any source": below(growth["linear"], SLOWER),
        f"window {WINDOW} and elu recover most of what elu lacks": every(
            [OPEN if found is None else above(found, MOST) for found in shares.values()]
        ),
    }  # fmt: skip
    lacks = {n: interval(differences(group["softmax"], group["elu"])) for n, group in cross.items()}
    worst = max(lacks)
    sentence = (
        f"{spelled(parts)}. Linear cross attention writes {mean(cross[worst]['elu']):.0%} of a reversed "
        f"word of {worst} right at equal steps, softmax {mean(cross[worst]['softmax']):.0%}."
    )
    lines = numbers(timed[0], growth, shares, lacks, ways)
    tables = [score_table(cross, ways, hybrid), decode_table(timed[0])]
    return Finding(outcome(parts), sentence, lines, meaning(growth, shares, lacks), tables, charts(timed[0], hybrid))


def cross_scores(rows: Sequence[Row]) -> dict[int, dict[str, dict[int, float]]]:
    """source length -> mixer -> seed -> accuracy."""
    lengths = sorted({row["config"]["length"] for row in rows if row["config"]["experiment"] == CROSS})
    return {n: {m: by_seed(rows, "score", experiment=CROSS, mixer=m, length=n) for m in MIXERS} for n in lengths}


def both_ways(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    found = {
        name: {m: by_seed(rows, "score", task="recall", mixer=m, causal=causal) for m in MIXERS}
        for name, causal in (("causal", None), ("bidirectional", False))
    }
    return {name: group for name, group in found.items() if any(group.values())}


def hybrid_scores(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    """task -> linear, softmax, hybrid -> seed -> accuracy."""
    found = {}
    for task, first in (("recall", ["conv"]), ("copy", [])):
        patterns = {"linear": ["elu", "elu"], "softmax": ["softmax", "softmax"], "hybrid": ["window", "elu"]}
        group = {name: by_seed(rows, "score", task=task, mixer=first + two) for name, two in patterns.items()}
        if any(group.values()):
            found[task] = group
    return found


def recovered(group: Mapping[str, Mapping[int, float]], guess: float) -> Interval | None:
    """(hybrid - linear) / (softmax - linear), the gap being that of the means.

    None where there is hardly a gap, or where neither linear nor hybrid has begun to learn and a share says nothing.
    """
    gap = mean(group["softmax"]) - mean(group["linear"])
    begun = max(mean(group["linear"]), mean(group["hybrid"])) > guess
    return interval(differences(group["hybrid"], group["linear"], gap)) if begun and gap >= GAP else None


def guessed(rows: Sequence[Row], task: str) -> float:
    """Share right by naming any value of the context, or any symbol."""
    pairs = [row["config"]["pairs"] for row in rows if row["config"].get("task") == task and "pairs" in row["config"]]
    return 1 / (pairs[0] if pairs else SYMBOLS)


def numbers(
    row: Row,
    growth: Mapping[str, Interval],
    shares: Mapping[str, Interval | None],
    lacks: Mapping[int, Interval],
    ways: Mapping[str, Mapping[str, Mapping[int, float]]],
) -> list[Any]:
    short, long = row["config"]["sources"][0], row["config"]["sources"][-1]
    cost = f"time of a decoded token, source of {long:,} tokens over {short:,}"
    found = [shown(f"{cost}: {name} cross attention", growth[name], "rounds") for name in ("linear", "softmax")]
    found += [
        shown(f"{task}: share of linear's gap to softmax that window + linear recovers", share)
        for task, share in shares.items()
        if share is not None
    ]
    worst = max(lacks)
    found.append(shown(f"reversal of {worst} symbols, share right: softmax cross minus linear cross", lacks[worst]))
    gaps = differences(ways["bidirectional"]["softmax"], ways["bidirectional"]["elu"])
    return [*found, number("bidirectional recall, share right: softmax minus linear", None, gaps)]


def score_table(*groups: Mapping[Any, Mapping[str, Mapping[int, float]]]) -> Table:
    titles = ("reversal of {} symbols, cross attention", "recall, {}", "{}, hybrid")
    lines = [
        (title.format(what), NAMES.get(name, name), str(interval(list(values.values()))), str(len(values)))
        for title, group in zip(titles, groups, strict=True)
        for what, arms in group.items()
        for name, values in arms.items()
    ]
    return Table(("task", "attention", "share right", "seeds"), lines, "accuracy at equal steps")


def charts(row: Row, hybrid: Mapping[str, Mapping[str, Mapping[int, float]]]) -> list[Chart]:
    lines = {}
    for name in NAMES.values():
        found = [middle([1e6 * x for x in seconds]) for seconds in columns(row, name)[0]]
        pairs = zip(row["config"]["sources"], found, strict=True)
        lines[name] = [(n, one.mean, one.low, one.high) for n, one in pairs]
    bars = {
        name: [
            (task, (i := interval(list(group[name].values()))).mean, i.low, i.high) for task, group in hybrid.items()
        ]
        for name in ("linear", "hybrid", "softmax")
    }
    return [
        Chart("one decoded token by length of its source", "source tokens", "microseconds", lines, log_x=True),
        Chart(f"hybrid of a window of {WINDOW} and linear", "task", "share right", bars, kind="bars"),
    ]


def meaning(
    growth: Mapping[str, Interval], shares: Mapping[str, Interval | None], lacks: Mapping[int, Interval]
) -> str:
    flat = growth["linear"].high <= SLOWER
    cost = "does not depend on" if flat else "was not shown to be independent of"
    known = [found.mean for found in shares.values() if found is not None]
    worst = max(lacks)
    quality = (
        f"softmax cross attention learns to reverse {worst} symbols faster, so keep softmax where the source is short"
        if lacks[worst].low > 0
        else f"at {worst} symbols both learn the reversal alike"
    )
    local = (
        "this budget is too small to say what a window in front recovers"
        if not known
        else f"a window of {WINDOW} in front recovers {min(known):.0%} of the gap at worst"
    )
    return f"With linear cross attention the cost of a decoded token {cost} the source; {quality}. In hybrids {local}."


CLAIM = Claim(
    name="attention-types",
    number="T14",
    paper="open",
    question="Does linear attention also work between two sequences, in both directions, and beside a local window?",
    statement="Reviews of the paper ask whether linearisation carries over to other types of attention; the paper runs "
    "self attention alone and gives no number. The expectation is that with linear cross attention a decoded token "
    "costs the same whatever the length of its source, and that linear attention with a local window recovers most of "
    "what linear attention lacks against softmax on copying and recall.",
    rule="Medians of rounds and means of seeds, 95 % intervals. Confirmed if a token after the longest source takes at "
    f"most {SLOWER:g} times one after the shortest, and window {WINDOW} + elu recovers {MOST:.0%} or more of the gap "
    f"between elu and softmax on every task with a gap of {GAP:g} or more; refuted if either is missed with its whole "
    "interval; otherwise unclear, and as long as neither elu nor the hybrid does better than a guess. Quality of cross "
    "and bidirectional attention is reported beside it.",
    units=units,
    read=read,
)
