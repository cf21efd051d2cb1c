"""T14: does linear attention carry over to cross attention, to both directions, and to hybrids with a window?

    cross       encoder-decoder that writes a word backwards; the two variants differ only in the cross attention
    decoding    time of a decoded token by the length of its source: linear keeps sums, softmax all keys and values
    both ways   recall with the queries before the pairs, bidirectional, compared with the same task in the usual order
    hybrid      recall (copy) by a window of 16 tokens, then elu: the share of elu's gap to softmax that is recovered

Katharopoulos et al. 2020 (arXiv:2006.16236) use self attention alone; a review asks whether the rest works too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.claim import Chart, Claim, Finding, Row, Setting, Table, Unit, by_seed, mean, number, unit, untested
from ...core.intervals import Interval, interval
from .cross import MIXERS, NAMES, columns, decode_table, grows, run_cross, time_decoding
from .variants import variant, variant_unit
from .verdict_logic import FEWEST, OPEN, above, below, clauses, differences, every, middle, outcome, shown

CROSS, DECODE = "cross", "cross decode"
SLOWER = 1.1  # limit on the time of a token after the longest source, relative to the shortest
MOST = 0.5  # share of the gap that counts as "most of it"
GAP = 0.05  # lead of softmax over linear that a share of the gap needs
WINDOW = 16
SYMBOLS = 10  # of the copy task: a guess is right one time in 10
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
    work = [
        unit(
            run_cross, {"experiment": CROSS, "mixer": one, "length": n, "steps": steps, "seed": seed}, 6e-4 * n * steps
        )
        for n, steps in plan["cross"]
        for seed in seeds
        for one in MIXERS
    ]
    for seed in seeds:
        both = [{}, {"causal": False}]
        variants = [
            variant("recall", one, **BOTH_WAYS, **way, seed=seed, steps=plan["both"]) for way in both for one in MIXERS
        ]
        variants += [variant("recall", **how, **FAR, seed=seed, steps=plan["recall"]) for how in hybrids("conv")]
        if plan["copy"]:
            variants += [variant("copy", **how, **COPY, seed=seed, steps=plan["copy"]) for how in hybrids()]
        work += [
            variant_unit(config, (0.02 if config["task"] == "copy" else 0.008) * config["steps"]) for config in variants
        ]
    decode: dict[str, Any] = {
        "experiment": DECODE,
        "sources": plan["sources"],
        "rounds": plan["rounds"],
        "d_model": 128,
        "heads": 4,
    }
    decode["threads"] = 1  # one token of one sequence has no work for two
    return [unit(time_decoding, decode, 0.08 * plan["rounds"], alone=True), *work]


def hybrids(*first: str) -> list[dict[str, Any]]:
    """Return two layers of linear, of softmax, and a window before linear, after `first` (recall needs conv)."""
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
            [OPEN if share is None else above(share, MOST) for share in shares.values()]
        ),
    }  # fmt: skip
    lacks = {n: interval(differences(group["softmax"], group["elu"])) for n, group in cross.items()}
    worst = max(lacks)
    sentence = (
        f"{clauses(parts)}. Linear cross attention writes {mean(cross[worst]['elu']):.0%} of a reversed "
        f"word of {worst} right at equal steps, softmax {mean(cross[worst]['softmax']):.0%}."
    )
    lines = numbers(timed[0], growth, shares, lacks, ways)
    tables = [score_table(cross, ways, hybrid), decode_table(timed[0])]
    return Finding(outcome(parts), sentence, lines, meaning(growth, shares, lacks), tables, charts(timed[0], hybrid))


def cross_scores(rows: Sequence[Row]) -> dict[int, dict[str, dict[int, float]]]:
    """Return source length -> mixer -> seed -> accuracy."""
    lengths = sorted({row["config"]["length"] for row in rows if row["config"]["experiment"] == CROSS})
    return {n: {m: by_seed(rows, "score", experiment=CROSS, mixer=m, length=n) for m in MIXERS} for n in lengths}


def both_ways(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    groups = {
        name: {m: by_seed(rows, "score", task="recall", mixer=m, causal=causal) for m in MIXERS}
        for name, causal in (("causal", None), ("bidirectional", False))
    }
    return {name: group for name, group in groups.items() if any(group.values())}


def hybrid_scores(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    """Return task -> linear, softmax, hybrid -> seed -> accuracy."""
    groups = {}
    for task, first in (("recall", ["conv"]), ("copy", [])):
        patterns = {"linear": ["elu", "elu"], "softmax": ["softmax", "softmax"], "hybrid": ["window", "elu"]}
        group = {name: by_seed(rows, "score", task=task, mixer=first + two) for name, two in patterns.items()}
        if any(group.values()):
            groups[task] = group
    return groups


def recovered(group: Mapping[str, Mapping[int, float]], guess: float) -> Interval | None:
    """Return (hybrid - linear) / (softmax - linear), with the gap of the means.

    None where the gap is small, or where neither linear nor hybrid has started to learn.
    """
    gap = mean(group["softmax"]) - mean(group["linear"])
    begun = max(mean(group["linear"]), mean(group["hybrid"])) > guess
    return interval(differences(group["hybrid"], group["linear"], gap)) if begun and gap >= GAP else None


def guessed(rows: Sequence[Row], task: str) -> float:
    """Return the accuracy of guessing any value of the context, or any symbol."""
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
    lines = [shown(f"{cost}: {name} cross attention", growth[name], "rounds") for name in ("linear", "softmax")]
    lines += [
        shown(f"{task}: share of linear's gap to softmax that window + linear recovers", share)
        for task, share in shares.items()
        if share is not None
    ]
    worst = max(lacks)
    lines.append(shown(f"reversal of {worst} symbols, share right: softmax cross minus linear cross", lacks[worst]))
    gaps = differences(ways["bidirectional"]["softmax"], ways["bidirectional"]["elu"])
    return [*lines, number("bidirectional recall, share right: softmax minus linear", None, gaps)]


def score_table(*groups: Mapping[Any, Mapping[str, Mapping[int, float]]]) -> Table:
    titles = ("reversal of {} symbols, cross attention", "recall, {}", "{}, hybrid")
    lines = [
        (title.format(what), NAMES.get(name, name), str(interval(list(values.values()))), str(len(values)))
        for title, group in zip(titles, groups, strict=True)
        for what, variants in group.items()
        for name, values in variants.items()
    ]
    return Table(("task", "attention", "share right", "seeds"), lines, "accuracy at equal steps")


def charts(row: Row, hybrid: Mapping[str, Mapping[str, Mapping[int, float]]]) -> list[Chart]:
    lines = {}
    for name in NAMES.values():
        middles = [middle([1e6 * x for x in seconds]) for seconds in columns(row, name)[0]]
        pairs = zip(row["config"]["sources"], middles, strict=True)
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
    known = [share.mean for share in shares.values() if share is not None]
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
