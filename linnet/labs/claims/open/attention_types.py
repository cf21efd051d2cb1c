"""T14: does a decoded token cost the same after a source of any length, with linear cross attention?

    decoding    time of a decoded token by the length of its source: linear keeps sums, softmax all keys and values
    cross       encoder-decoder that writes a word backwards; the two variants differ only in the cross attention
    both ways   recall with the queries before the pairs, bidirectional, compared with the same task in the usual order
    hybrid      recall (copy) by a window of 16 tokens, then elu, compared with elu alone and with softmax

Decoding decides; the others are reported. Katharopoulos et al. 2020 (arXiv:2006.16236) use self attention alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.claim import (
    NO,
    YES,
    Chart,
    Claim,
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
    unit,
    untested,
)
from ...core.intervals import Interval, interval, median_interval
from ...core.licence import quiet
from .cross import MIXERS, NAMES, columns, decode_table, grows, rounds_of, run_cross, time_decoding
from .variants import variant, variant_unit
from .verdict_logic import below, differences, share, shown

CROSS, DECODE = "cross", "cross decode"
LONGEST = 16  # times the shortest source that the longest must have
LEARNED = 0.9  # share of a reversed word right
SLOWER = 1.1  # limit on the time of a token after the longest source, relative to the shortest
WINDOW = 16
Groups = Mapping[Any, Mapping[str, Mapping[int, float]]]  # what was learned -> variant -> seed -> share right
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
    row, cross, ways, hybrid = timed[0], cross_scores(rows), both_ways(rows), hybrid_scores(rows)
    sources = row["config"]["sources"]
    if sources[-1] < LONGEST * sources[0]:
        return untested(f"the longest source is {sources[-1]} tokens; {LONGEST} times the shortest is needed")
    growth = {name: grows(row, name) for name in NAMES.values()}
    linear = growth["linear"]
    sentence = (
        f"After a source of {sources[-1]:,} tokens a decoded token takes {figures(linear.mean)} times as long as after "
        f"{sources[0]:,} with linear cross attention, and {figures(growth['softmax'].mean)} times with softmax"
    )
    state = below(linear, SLOWER)
    return Finding(
        Evidence(state, REGIME, (quiet(rounds_of(row)),), linear.seeds, "rounds"),
        sentence,
        numbers(row, growth, cross, ways, hybrid),
        f"width {row['config']['d_model']}, {sources[0]:,} to {sources[-1]:,} source tokens, {linear.seeds} rounds",
        meaning(state, cross),
        [decode_table(row), score_table(cross, ways, hybrid)],
        charts(row, hybrid),
    )


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


def numbers(row: Row, growth: Mapping[str, Interval], cross: Groups, ways: Groups, hybrid: Groups) -> list[Number]:
    short, long = row["config"]["sources"][0], row["config"]["sources"][-1]
    cost = f"time of a decoded token, source of {long:,} tokens / {short:,}"
    lines = [shown(f"{cost}: {name} cross attention", growth[name], "rounds") for name in ("linear", "softmax")]
    pairs = [(f"reversal of {n} symbols, share right: softmax cross - linear cross", "softmax", "elu", group)
             for n, group in cross.items()]  # fmt: skip
    pairs += [(f"{way} recall, share right: softmax - linear", "softmax", "elu", group) for way, group in ways.items()]
    for task, group in hybrid.items():
        pairs.append((f"{task}, share right: window and linear - linear alone", "hybrid", "linear", group))
        pairs.append((f"{task}, share right: softmax - linear alone", "softmax", "linear", group))
    for what, one, other, group in pairs:
        gaps = differences(group[one], group[other])
        warning = "" if has_learned(group) else " (softmax did not learn it: no comparison)"
        lines += [shown(what + warning, interval(gaps))] if gaps else []
    return lines


def score_table(*groups: Groups) -> Table:
    titles = ("reversal of {} symbols, cross attention", "recall, {}", "{}, hybrid")
    lines = [
        (title.format(what), NAMES.get(name, name), str(share(values.values())), str(len(values)))
        for title, group in zip(titles, groups, strict=True)
        for what, variants in group.items()
        for name, values in variants.items()
        if values
    ]
    return Table(("task", "attention", "share right", "seeds"), lines, "accuracy at equal steps")


def charts(row: Row, hybrid: Groups) -> list[Chart]:
    lines = {}
    for name in NAMES.values():
        middles = [median_interval([1e6 * x for x in seconds]) for seconds in columns(row, name)[0]]
        pairs = zip(row["config"]["sources"], middles, strict=True)
        lines[name] = [(n, one.mean, one.low, one.high) for n, one in pairs]
    bars = {
        name: [(task, *share(group[name].values())[:3]) for task, group in hybrid.items() if group[name]]
        for name in ("linear", "hybrid", "softmax")
    }
    return [
        Chart("one decoded token by length of its source", "source tokens", "microseconds", lines, log_x=True),
        Chart(f"hybrid of a window of {WINDOW} and linear", "task", "share right", bars, kind="bars"),
    ]


def has_learned(group: Mapping[str, Mapping[int, float]]) -> bool:
    """Return whether softmax learned a task; without it a lead or a lag says nothing."""
    return bool(group["softmax"]) and mean(group["softmax"]) >= LEARNED


def meaning(state: str, cross: Groups) -> str:
    """Return advice; the quality of cross attention is part of it where both variants ran and softmax learned."""
    if state != YES:
        return "Time a decoded token after sources as long as yours before you choose linear cross attention for speed."
    text = (
        "Linear cross attention keeps sums of the source instead of its keys and values, so that long sources (a book, "
        "a recording) cost a decoded token nothing extra. "
    )
    behind = [n for n, group in cross.items() if has_learned(group) and group["elu"] and mean(group["elu"]) < LEARNED]
    if not behind:
        return text + "Its quality is another matter: compare it on your task."
    n = behind[-1]
    return text + (
        f"Its quality is another matter: at equal steps it writes {mean(cross[n]['elu']):.0%} of a reversed word of "
        f"{n} symbols right where softmax writes {mean(cross[n]['softmax']):.0%}."
    )


REGIME = Regime("sources of any length; the paper has self attention only", "sources of up to thousands of tokens")
CLAIM = Claim(
    name="attention-types",
    number="T14",
    paper="open",
    statement="With linear cross attention a decoded token takes the same time after a source of any length.",
    source="Reviews of the paper ask whether linear attention carries over to other types of attention; the paper runs "
    "self attention alone and gives no number. The recurrent form lets one expect that a decoder which reads a source "
    "by linear cross attention keeps sums of fixed size, whatever the length of the source.",
    rule="The time of a decoded token after the longest source over that after the shortest, round by round. Yes if "
    f"the interval of the median ends at {SLOWER:g} or below, no if it begins above; open between. The longest source "
    f"must be {LONGEST} times the shortest or more. Control: the machine was quiet. Quality of cross and bidirectional "
    "attention and of hybrids with a window is reported, not judged.",
    answers={YES: "Yes, up to the longest source timed", NO: "No, a longer source makes it slower"},
    change=f"A source at which a token takes more than {SLOWER:g} times as long as after a short one.",
    units=units,
    read=read,
)
