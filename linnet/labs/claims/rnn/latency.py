"""T7: seconds for one image, value by value, at the paper's full model sizes: linear attention and cached softmax.

    seconds of an image = sum over ten tenths of (seconds per step there) x (values there)

Table 5 of arXiv:2006.16236. Linear attention and softmax with a cache take turns in every tenth of the image
(image_decode_timing.py); models that read their prefix again for every value are measured at three lengths
(generation.py), and reported. Whether a late value costs more than an early one is judged by T8, which times it more
often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ...bench.decode_images import PAPER_SECONDS
from ...core.claim import (
    NO,
    OPEN,
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
    figures,
    spread,
    unit,
    untested,
)
from ...core.intervals import Interval, median_interval
from ...core.licence import quiet
from ..open.verdict_logic import above
from .generation import PRESETS, TITLES, how_measured, image_seconds, matches, recomputed, recomputing, size
from .image_decode_timing import CACHE, ENGINE, TENTHS, TORCH, blocks, time_image

EXPERIMENT = "latency"
RECOMPUTE = ("softmax", "lsh-1", "lsh-4")
PAPER_CACHED = {"mnist": "1.3", "cifar10": "1.6"}
PAPER_AGAIN = {
    "mnist": {"softmax": "13.2", "lsh-1": "8.3", "lsh-4": "20"},
    "cifar10": {"softmax": "191.8", "lsh-1": "51.4", "lsh-4": "116.7"},
}


def units(setting: Setting) -> list[Unit]:
    smoke, quick = setting.budget == "smoke", setting.budget == "quick"
    steps = {"mnist": 24 if quick else 79, "cifar10": 8 if quick else 40 if setting.budget == "hour" else 308}
    guess = {"mnist": 10.0 if quick else 12.0, "cifar10": 14.0 if quick else 30.0}
    work = []
    for preset in PRESETS:
        rounds = 1 if smoke else 5
        config = {"experiment": EXPERIMENT, **size(preset, smoke), "steps": steps[preset], "rounds": rounds}
        config |= {"images": 1 if smoke or (quick and preset == "cifar10") else 3}
        work.append(unit(time_image, config, 0.5 if smoke else guess[preset], alone=True))
        mixers = RECOMPUTE[:2] if smoke or (quick and preset == "cifar10") else RECOMPUTE
        work += [recomputing(preset, mixer, setting.budget) for mixer in mixers]
    return work


def per_image(row: Row, variant: str) -> list[float]:
    """Return the seconds of an image for each round: the steps of every tenth stand for all its values."""
    tokens, tenths = row["config"]["tokens"], row["metrics"]["step_seconds"][variant]
    return [sum(times) * tokens / TENTHS for times in zip(*tenths, strict=True)]


def growth(row: Row, variant: str) -> Interval:
    """Return seconds per step in the last tenth of the image / in the first, over the rounds."""
    ages = row["metrics"]["ages"][variant]
    return median_interval([last / first for last, first in zip(ages["last"], ages["first"], strict=True)])


def against(row: Row, variant: str, base: str) -> list[float]:
    """Return the seconds of an image, variant / base, round by round."""
    return [a / b for a, b in zip(per_image(row, variant), per_image(row, base), strict=True)]


def read(rows: Sequence[Row]) -> Finding:
    walks = {preset: row for preset in PRESETS for row in rows if matches(row, experiment=EXPERIMENT, preset=preset)}
    again = {preset: recomputed(rows, preset, "softmax") for preset in PRESETS}
    for preset in PRESETS:
        if preset not in walks or again[preset] is None:
            return untested(f"the times of {TITLES[preset]} are missing; run them, nothing else beside them")
    if any(row["config"]["changes"] for row in walks.values()):
        return untested("these rows are of tiny models, made to see that the work runs; take the budget quick or more")
    cached = {preset: median_interval(against(row, CACHE, TORCH)) for preset, row in walks.items()}
    answers = [above(one, 1.0) for one in cached.values()]
    state = NO if NO in answers else OPEN if OPEN in answers else YES
    sentence = "; ".join(
        f"{TITLES[p]}: cached softmax takes {figures(cached[p].mean)} times as long as linear attention in the same "
        f"plain torch, and the paper has {PAPER_CACHED[p]}"
        for p in walks
    )
    repeats = min(one.seeds for one in cached.values())
    lengths = " and ".join(f"{row['config']['tokens']:,}" for row in walks.values())
    evidence = Evidence(state, REGIME, (quiet(timings(walks)),), repeats, "rounds")
    scope = f"the paper's networks, images of {lengths} values, one at a time, {repeats} rounds"
    return Finding(evidence, sentence, numbers(walks, rows), scope, meaning(walks), tables(walks, rows), [chart(walks)])


def timings(walks: Mapping[str, Row]) -> dict[str, list[float]]:
    """Return the rounds of an image by size and attention, for the control that the machine was quiet."""
    return {
        f"{TITLES[preset]}, {variant}": per_image(row, variant)
        for preset, row in walks.items()
        for variant in (TORCH, CACHE)
    }


def numbers(walks: Mapping[str, Row], rows: Sequence[Row]) -> list[Number]:
    """Return what decides, cached softmax at both sizes, then what is reported."""
    what = "time of cached softmax / linear, both in the same plain torch"
    lines = [ratio(f"{TITLES[p]}, {what}", PAPER_CACHED[p], against(row, CACHE, TORCH)) for p, row in walks.items()]
    for preset, row in walks.items():
        what = f"{TITLES[preset]}, one image with linear attention, values drawn, on linnet's engine"
        paper = f"{PAPER_SECONDS[preset]} s on a CPU it does not name"
        lines.append(spread(what, paper, median_interval(row["metrics"]["image_seconds"]), "images", "s"))
        uncached = recomputed(rows, preset, "softmax")
        assert uncached is not None
        base = median(per_image(row, TORCH))
        what = f"{TITLES[preset]}, time of softmax without a cache / linear in plain torch"
        lines.append(ratio(what, PAPER_AGAIN[preset]["softmax"], [s / base for s in image_seconds(uncached)]))
    return lines


def ratio(what: str, paper: str, values: Sequence[float]) -> Number:
    return spread(what, paper, median_interval(values), "rounds")


def meaning(walks: Mapping[str, Row]) -> str:
    plain, ours = (
        " and ".join(f"{figures(median(against(row, CACHE, base)))} times ({TITLES[p]})" for p, row in walks.items())
        for base in (TORCH, ENGINE)
    )
    return (
        "The large factors of the paper are against softmax that reads its prefix again for every value, which a cache "
        f"of keys and values avoids. With a cache softmax takes {plain} as long as linear attention in the same plain "
        f"torch, and {ours} as long as linnet's engine."
    )


def tables(walks: Mapping[str, Row], rows: Sequence[Row]) -> list[Table]:
    result = []
    for preset, row in walks.items():
        base = {variant: median(per_image(row, variant)) for variant in (ENGINE, TORCH)}
        steps, tokens = row["config"]["steps"], row["config"]["tokens"]
        whole = steps * TENTHS >= tokens
        how = "every step measured" if whole else f"{steps} steps of every tenth measured, summed over positions"
        lines = [
            (
                variant,
                median(per_image(row, variant)),
                figures(growth(row, variant).mean),
                how,
                PAPER_CACHED[preset] if variant == CACHE else "1",
            )
            for variant in (ENGINE, TORCH, CACHE)
        ]
        for mixer in RECOMPUTE:
            again = recomputed(rows, preset, mixer)
            if again is not None:
                seconds = median(image_seconds(again))
                lines.append((f"{mixer}, recomputed", seconds, "-", how_measured(again), PAPER_AGAIN[preset][mixer]))
        head = ("model", "seconds per image", "/ linear, torch", "/ linear, engine", "paper, CPU: / its linear")
        body = [
            (name, figures(s), figures(s / base[TORCH]), figures(s / base[ENGINE]), paper, grown, method)
            for name, s, grown, method, paper in lines
        ]
        result.append(
            Table((*head, "last tenth / first", "how"), body, f"{TITLES[preset]}, {tokens:,} values, one image")
        )
    return result


def chart(walks: Mapping[str, Row]) -> Chart:
    row = walks["cifar10"]
    starts = [first for first, _ in blocks(row["config"]["tokens"], row["config"]["steps"])]
    series = {
        variant: [
            (first, *(1000 * of(times) for of in (median, min, max)))
            for first, times in zip(starts, tenths, strict=True)
        ]
        for variant, tenths in row["metrics"]["step_seconds"].items()
    }
    caption = (
        "Median of the rounds, from the fastest to the slowest. A cached step reads all keys and values before it."
    )
    return Chart("CIFAR-10 model, one stream", "position in the image", "ms per value", series, caption=caption)


REGIME = Regime("the networks of table 5, on a CPU", "the networks of table 5, on a CPU")
CLAIM = Claim(
    name="latency",
    number="T7",
    paper="rnn",
    statement="On a CPU one image takes less time with linear attention than with softmax over cached keys and values.",
    source="One image, CPU (table 5): the paper prints 5.5 s (MNIST) and 45.1 s (CIFAR-10) for linear attention, "
    "1.3 and 1.6 times that for softmax with cached keys and values, 13.2 and 191.8 times for softmax that recomputes "
    "its prefix, 8.3 and 51.4 times for Reformer with one round.",
    rule="Holds if at both sizes (784 and 3,072 values) an image takes longer with cached softmax than with linear "
    "attention in equal plain torch, with the whole interval of the median ratio of the rounds above 1; does not hold "
    "if at one of them the whole interval is below 1; too close to call between. Control: a quiet machine. How large "
    "the factors are, and what softmax without a cache takes, is reported and decides nothing.",
    answers={YES: "Yes, at both image sizes", NO: "No, cached softmax is faster"},
    change="rounds on a quiet machine in which cached softmax is as fast at one of the two sizes",
    units=units,
    read=read,
)
