"""T7: seconds for one image, value by value, at the paper's full model sizes, and whether a later value costs more.

    seconds of an image = sum over ten tenths of (seconds per step there) x (values there)

Table 5 of arXiv:2006.16236. Linear attention and softmax with its keys and values kept take turns in every tenth of the
image (walk.py); models that read their prefix again for every value are measured at three lengths (generation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ....bench.decode_images import PAPER_SECONDS
from ...recall.stats import interval
from ..claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    number,
    unit,
    untested,
)
from .generation import PRESETS, TITLES, how_measured, image_seconds, matches, recomputed, recomputing, size
from .walk import CACHE, ENGINE, TENTHS, TORCH, blocks, walk

EXPERIMENT = "latency"
FLAT = 1.1  # last tenth / first tenth of the steps: above is not constant
RECOMPUTE = ("softmax", "lsh-1", "lsh-4")
PAPER_CACHED = {"mnist": "1.3", "cifar10": "1.6"}
PAPER_AGAIN = {
    "mnist": {"softmax": "13.2", "lsh-1": "8.3", "lsh-4": "20"},
    "cifar10": {"softmax": "191.8", "lsh-1": "51.4", "lsh-4": "116.7"},
}


def units(setting: Setting) -> list[Unit]:
    smoke, quick = setting.budget == "smoke", setting.budget == "quick"
    steps = {"mnist": 24 if quick else 79, "cifar10": 8 if quick else 40 if setting.budget == "hour" else 308}
    guess = {"mnist": 9.0 if quick else 12.0, "cifar10": 12.0 if quick else 30.0}
    found = []
    for preset in PRESETS:
        rounds = 1 if smoke else 3 if quick else 5
        config = {"experiment": EXPERIMENT, **size(preset, smoke), "steps": steps[preset], "rounds": rounds}
        config |= {"images": 1 if smoke or (quick and preset == "cifar10") else 3}
        found.append(unit(walk, config, 0.5 if smoke else guess[preset], alone=True))
        mixers = RECOMPUTE[:2] if smoke or (quick and preset == "cifar10") else RECOMPUTE
        found += [recomputing(preset, mixer, setting.budget) for mixer in mixers]
    return found


def per_image(row: Row, arm: str) -> list[float]:
    """Seconds of an image for each round: the steps of every tenth stand for all values of it."""
    tokens, found = row["config"]["tokens"], row["metrics"]["step_seconds"][arm]
    return [sum(times) * tokens / TENTHS for times in zip(*found, strict=True)]


def growth(row: Row, arm: str) -> float:
    """Seconds per step in the last tenth of the image / in the first, of the fastest round of each."""
    ages = row["metrics"]["ages"][arm]
    return float(min(ages["last"]) / min(ages["first"]))


def against(row: Row, arm: str, base: str) -> list[float]:
    """Seconds of an image, arm / base, round by round."""
    return [a / b for a, b in zip(per_image(row, arm), per_image(row, base), strict=True)]


def read(rows: Sequence[Row]) -> Finding:
    walks = {preset: row for preset in PRESETS for row in rows if matches(row, experiment=EXPERIMENT, preset=preset)}
    again = {preset: recomputed(rows, preset, "softmax") for preset in PRESETS}
    for preset in PRESETS:
        if preset not in walks or again[preset] is None:
            return untested(f"the times of {TITLES[preset]} are missing; run them, nothing else beside them")
    if any(row["config"]["changes"] for row in walks.values()):
        return untested("these rows are of tiny models, made to see that the work runs; take the budget quick or more")
    outcome, sentence = verdict(walks, {preset: row for preset, row in again.items() if row is not None})
    return Finding(outcome, sentence, numbers(walks, rows), meaning(walks), tables(walks, rows), [chart(walks)])


def verdict(walks: dict[str, Row], again: dict[str, Row]) -> tuple[str, str]:
    cached = {p: interval(against(row, CACHE, TORCH)) for p, row in walks.items()}
    slower = {p: median(image_seconds(again[p])) / median(per_image(row, TORCH)) for p, row in walks.items()}
    flat = {p: max(growth(row, ENGINE), growth(row, TORCH)) for p, row in walks.items()}
    said = "; ".join(
        f"{TITLES[p]}: cached softmax takes {figures(cached[p].mean)} times as long as linear attention in the same "
        f"plain torch, recomputing softmax {figures(slower[p])} times, and a linear step of the last tenth "
        f"{figures(flat[p])} times as long as one of the first"
        for p in walks
    )
    if any(one.high < 1 for one in cached.values()) or min(slower.values()) < 1:
        return REFUTED, said
    if all(one.low > 1 for one in cached.values()) and max(flat.values()) <= FLAT:
        return CONFIRMED, said
    return UNCLEAR, said


def numbers(walks: dict[str, Row], rows: Sequence[Row]) -> list[Number]:
    found = []
    for preset, row in walks.items():
        what = f"{TITLES[preset]}, one image with linear attention, values drawn, on linnet's engine"
        paper = f"{PAPER_SECONDS[preset]} s on a CPU it does not name"
        found.append(number(what, paper, row["metrics"]["image_seconds"], "images", "s"))
        what = f"{TITLES[preset]}, time of cached softmax / linear, both in the same plain torch"
        found.append(number(what, PAPER_CACHED[preset], against(row, CACHE, TORCH), "rounds"))
        uncached = recomputed(rows, preset, "softmax")
        assert uncached is not None
        base = median(per_image(row, TORCH))
        what = f"{TITLES[preset]}, time of softmax without a cache / linear in plain torch"
        ratios = [seconds / base for seconds in image_seconds(uncached)]
        found.append(number(what, PAPER_AGAIN[preset]["softmax"], ratios, "rounds"))
    return found


def meaning(walks: dict[str, Row]) -> str:
    plain, ours = (
        " and ".join(f"{figures(median(against(row, CACHE, base)))} times ({TITLES[p]})" for p, row in walks.items())
        for base in (TORCH, ENGINE)
    )
    return (
        "The large factors of the paper are against softmax that reads its prefix again for every value, which a cache "
        f"of keys and values avoids. With a cache softmax takes {plain} as long as linear attention in the same plain "
        f"torch, and {ours} as long as linnet's engine."
    )


def tables(walks: dict[str, Row], rows: Sequence[Row]) -> list[Table]:
    found = []
    for preset, row in walks.items():
        base = {arm: median(per_image(row, arm)) for arm in (ENGINE, TORCH)}
        steps, tokens = row["config"]["steps"], row["config"]["tokens"]
        whole = steps * TENTHS >= tokens
        how = "every step measured" if whole else f"{steps} steps of every tenth measured, summed over positions"
        lines = [
            (
                arm,
                median(per_image(row, arm)),
                figures(growth(row, arm)),
                how,
                PAPER_CACHED[preset] if arm == CACHE else "1",
            )
            for arm in (ENGINE, TORCH, CACHE)
        ]
        for mixer in RECOMPUTE:
            again = recomputed(rows, preset, mixer)
            if again is not None:
                seconds = median(image_seconds(again))
                lines.append((f"{mixer}, recomputed", seconds, "-", how_measured(again), PAPER_AGAIN[preset][mixer]))
        head = ("model", "seconds per image", "/ linear, torch", "/ linear, engine", "paper, CPU: / its linear")
        body = [
            (name, figures(s), figures(s / base[TORCH]), figures(s / base[ENGINE]), paper, grown, said)
            for name, s, grown, said, paper in lines
        ]
        found.append(
            Table((*head, "last tenth / first", "how"), body, f"{TITLES[preset]}, {tokens:,} values, one image")
        )
    return found


def chart(walks: dict[str, Row]) -> Chart:
    row = walks["cifar10"]
    starts = [first for first, _ in blocks(row["config"]["tokens"], row["config"]["steps"])]
    series = {
        arm: [
            (first, *(1000 * of(times) for of in (median, min, max)))
            for first, times in zip(starts, found, strict=True)
        ]
        for arm, found in row["metrics"]["step_seconds"].items()
    }
    caption = (
        "Median of the rounds, from the fastest to the slowest. A cached step reads all keys and values before it."
    )
    return Chart("CIFAR-10 model, one stream", "position in the image", "ms per value", series, caption=caption)


CLAIM = Claim(
    name="latency",
    number="T7",
    paper="rnn",
    question="How long does one image take, value by value, and does the last value cost more than the first?",
    statement="One image, CPU (table 5): the paper prints 5.5 s (MNIST) and 45.1 s (CIFAR-10) for linear attention, "
    "1.3 and 1.6 times that for softmax with cached keys and values, 13.2 and 191.8 times for softmax that recomputes "
    "its prefix, 8.3 and 51.4 times for Reformer with one round. A step of linear attention costs the same anywhere.",
    rule="Confirmed if, at both sizes, an image takes longer with cached softmax than with linear attention in equal "
    "plain torch (interval over rounds above 1) and longer with softmax that recomputes, and a linear step of the last "
    f"tenth takes at most {FLAT} times one of the first (fastest rounds). Refuted if softmax is faster, cached "
    "(interval below 1) or recomputing. How large the factors are is told, and decides nothing.",
    units=units,
    read=read,
)
