"""T8: values and images per second with many parallel streams, early and late in an image; and bytes per stream.

    images per second = streams / (N x mean of (seconds per step early, seconds per step late))

Tables 1, 2 and 4 of arXiv:2006.16236, which compare each method at the batch that suits it. Steps of linear attention
and of cached softmax take turns at the beginning of an image and 128 values before its end (streams.py); a cached step
costs a + b n, so the mean of both is that of an image. Softmax without a cache: generation.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ...bench.decode import SIZES
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Control,
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
from ..open.verdict_logic import above, below
from .generation import PRESETS, TITLES, image_seconds, matches, recomputed, recomputing, size
from .image_decode_timing import CACHE, ENGINE, TORCH
from .streams import EARLY, LATE, PLACES, WINDOW, measure

EXPERIMENT = "throughput"
CACHE_BYTES = 2 * 10**9
STATE_BYTES = {"mnist": 270_336, "cifar10": 540_672}  # 4 bytes x layers x H (D V + D), H = 8, D = V = 32
TIMES = 2.0  # as many images as cached softmax: the statement
FLAT = 1.1  # time of a late value / an early one that still counts as the same
PAPER_CACHED = {"mnist": "18.9 (142.8 / 7.56 images/s, GPU)", "cifar10": "55.8 (17.85 / 0.32 images/s, GPU)"}
PAPER_AGAIN = {"mnist": "317 against uncached (GPU)", "cifar10": "4,462 against uncached (GPU)"}


def units(setting: Setting) -> list[Unit]:
    smoke = setting.budget == "smoke"
    batches = {"smoke": [1, 4], "quick": [1, 8, 64], "hour": [1, 8, 64, 256], "paper": [1, 8, 64, 256, 1024]}
    rounds = {"smoke": 1, "quick": 5}.get(setting.budget, 9)
    work = []
    for preset in PRESETS:
        for batch in batches[setting.budget]:
            sizes = {**size(preset, smoke), "batch": batch, "rounds": rounds, "cache_bytes": CACHE_BYTES}
            layers, _ = SIZES[preset]
            guess = 0.3 if smoke else 1.0 + rounds * layers * (0.01 + 0.0006 * batch)
            work.append(unit(measure, {"experiment": EXPERIMENT, **sizes}, guess, alone=True))
        work.append(recomputing(preset, "softmax", setting.budget))
    return work


def streams_of(row: Row, variant: str) -> int:
    return int(row["metrics"]["cached_streams"] if variant == CACHE else row["config"]["batch"])


def rates(row: Row, variant: str, place: str) -> list[float]:
    """Return values per second, round by round."""
    return [streams_of(row, variant) / seconds for seconds in row["metrics"]["step_seconds"][variant][place]]


def images(row: Row, variant: str) -> list[float]:
    """Return images per second, round by round."""
    early, late = (row["metrics"]["step_seconds"][variant][place] for place in PLACES)
    tokens, streams = row["config"]["tokens"], streams_of(row, variant)
    return [streams / (tokens * (a + b) / 2) for a, b in zip(early, late, strict=True)]


def growth(rows: Sequence[Row], variant: str) -> Interval:
    """Return time of a late value / an early one, over the rounds of every batch."""
    places = [row["metrics"]["step_seconds"][variant] for row in rows]
    return median_interval([late / early for at in places for early, late in zip(at[EARLY], at[LATE], strict=True)])


def best(rows: Sequence[Row], variant: str) -> Row:
    """Return the row with the best batch of a variant."""
    return max(rows, key=lambda row: median(images(row, variant)))


def gain(rows: Sequence[Row], variant: str) -> list[float]:
    """Return images per second / those of cached softmax, each at its best batch, round by round."""
    ours, theirs = images(best(rows, variant), variant), images(best(rows, CACHE), CACHE)
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def read(rows: Sequence[Row]) -> Finding:
    by_preset = {
        preset: [row for row in rows if matches(row, experiment=EXPERIMENT, preset=preset)] for preset in PRESETS
    }
    for preset, some in by_preset.items():
        if len(some) < 2 or recomputed(rows, preset, "softmax") is None:
            return untested(f"the times of {TITLES[preset]} with several batches are missing; run all of them")
    if any(row["config"]["changes"] for row in rows):
        return untested("these rows are of tiny models, made to see that the work runs; take the budget quick or more")
    gains = {preset: median_interval(gain(some, TORCH)) for preset, some in by_preset.items()}
    grown = {(preset, one): growth(some, one) for preset, some in by_preset.items() for one in (TORCH, ENGINE)}
    answers = [above(one, TIMES) for one in gains.values()] + [below(one, FLAT) for one in grown.values()]
    state = NO if NO in answers else OPEN if OPEN in answers else YES
    sentence = "; ".join(
        f"{TITLES[p]}: {figures(gains[p].mean)} times the images per second of cached softmax in the same plain torch, "
        f"and a late value takes {figures(grown[p, TORCH].mean)} times as long as an early one (cached softmax: "
        f"{figures(growth(some, CACHE).mean)})"
        for p, some in by_preset.items()
    )
    repeats = min(one.seeds for one in gains.values())
    most = max(streams_of(row, TORCH) for some in by_preset.values() for row in some)
    lengths = " and ".join(f"{some[0]['config']['tokens']:,}" for some in by_preset.values())
    evidence = Evidence(state, REGIME, (quiet(timings(by_preset)), sized(by_preset)), repeats, "rounds")
    scope = f"the paper's networks, images of {lengths} values, up to {most} at once, {repeats} rounds"
    shown = numbers(by_preset, rows)
    return Finding(evidence, sentence, shown, scope, meaning(by_preset), tables(by_preset), [chart(by_preset)])


def timings(by_preset: Mapping[str, list[Row]]) -> dict[str, list[float]]:
    """Return the rounds of the best batches, for the control that the machine was quiet."""
    return {
        f"{TITLES[preset]}, {variant}, {place}": best(some, variant)["metrics"]["step_seconds"][variant][place]
        for preset, some in by_preset.items()
        for variant in (TORCH, CACHE)
        for place in PLACES
    }


def sized(by_preset: Mapping[str, list[Row]]) -> Control:
    """Return the control that the state of a stream has the size that it has in the paper's networks."""
    held = {p: {row["metrics"]["bytes"]["linear"] for row in some} for p, some in by_preset.items()}
    detail = "; ".join(
        f"a stream of {TITLES[p]} takes {' or '.join(f'{size:,}' for size in sorted(sizes))} bytes, "
        f"{STATE_BYTES[p]:,} in the paper's network"
        for p, sizes in held.items()
    )
    fits = all(sizes == {STATE_BYTES[p]} for p, sizes in held.items())
    return Control("the networks are the paper's", fits, detail, "another network was timed")


def numbers(by_preset: Mapping[str, list[Row]], rows: Sequence[Row]) -> list[Number]:
    """Return what decides, images per second and late values at both sizes, then what is reported."""
    lines = []
    for preset, some in by_preset.items():
        what = "images/s of linear / cached softmax, both in the same plain torch, each at its best batch"
        lines.append(ratio(f"{TITLES[preset]}, {what}", PAPER_CACHED[preset], median_interval(gain(some, TORCH))))
    for preset, some in by_preset.items():
        for variant in (TORCH, ENGINE, CACHE):
            what = f"{TITLES[preset]}, time of a late value / an early one, {variant}"
            lines.append(ratio(what, None, growth(some, variant)))
    for preset, some in by_preset.items():
        uncached = recomputed(rows, preset, "softmax")
        assert uncached is not None
        top = median(images(best(some, TORCH), TORCH))
        what = f"{TITLES[preset]}, images/s of linear, many at once / softmax without a cache, one at a time"
        lines.append(ratio(what, PAPER_AGAIN[preset], median_interval([top * s for s in image_seconds(uncached)])))
        held = some[0]["metrics"]["bytes"]
        what = f"{TITLES[preset]}, bytes of keys and values of a full image / bytes of the linear state, one stream"
        lines.append(Number(what, None, held["cached"] / held["linear"]))
    return lines


def ratio(what: str, paper: str | None, measured: Interval) -> Number:
    return spread(what, paper, measured, "rounds")


def meaning(by_preset: Mapping[str, list[Row]]) -> str:
    parts = " and ".join(f"{figures(median(gain(some, ENGINE)))} for {TITLES[p]}" for p, some in by_preset.items())
    return (
        "The paper's 317 and 4,462 are against softmax without a cache (against uncached), on a GPU and at batches of "
        "their own; against a cache its tables give 18.9 and 55.8. On this machine linnet's engine makes "
        f"{parts} times the images per second of cached softmax in plain torch. What lets many streams run at once is "
        "that the state of a stream is small and does not grow."
    )


def tables(by_preset: Mapping[str, list[Row]]) -> list[Table]:
    speeds, sizes = [], []
    for preset, some in by_preset.items():
        for row in some:
            for variant in (ENGINE, TORCH, CACHE):
                values = [figures(median(rates(row, variant, place))) for place in PLACES]
                rate = figures(median(images(row, variant)))
                speeds.append(
                    (
                        TITLES[preset],
                        variant,
                        str(streams_of(row, variant)),
                        *values,
                        figures(growth([row], variant).mean),
                        rate,
                    )
                )
        held = some[0]["metrics"]["bytes"]
        sizes.append((TITLES[preset], f"{held['linear']:,}", f"{held['cached']:,}"))
    head = ("model", "attention", "streams", "values/s early", "values/s late", "time late / early", "images/s")
    bytes_head = ("model", "bytes, linear, at any length", "bytes, cached softmax, at full length")
    return [Table(head, speeds, "Streams at once"), Table(bytes_head, sizes, "One stream")]


def chart(by_preset: Mapping[str, list[Row]]) -> Chart:
    rows = by_preset["cifar10"]
    series = {
        f"{variant}, {place}": [(streams_of(row, variant), median(rates(row, variant, place))) for row in rows]
        for variant in (ENGINE, TORCH, CACHE)
        for place in PLACES
    }
    most = f"{CACHE_BYTES // 10**9} GB"
    caption = f"Early: the first values of an image. Late: the last {WINDOW}. The cache is kept below {most}."
    title = "CIFAR-10 model, streams side by side"
    return Chart(title, "streams at once", "values per second", series, log_x=True, log_y=True, caption=caption)


REGIME = Regime("the networks of tables 1, 2 and 4, on a GPU", "the networks of tables 1, 2 and 4, on a CPU")
CLAIM = Claim(
    name="throughput",
    number="T8",
    paper="rnn",
    statement="With many images at once linear attention makes at least twice as many per second as cached softmax, "
    "and late values cost no more than early ones.",
    source="On a GPU (tables 1, 2 and 4) the paper prints 142.8 (MNIST) and 17.85 (CIFAR-10) images per second for "
    "linear attention, 7.56 and 0.32 for softmax with cached keys and values (linear is 18.9 and 55.8 times as fast), "
    "and 0.45 and 0.004 for softmax that recomputes its prefix (317 and 4,462 times, against uncached). The factor of "
    "2 is ours, for a CPU.",
    rule=f"Holds if at both sizes and in the same plain torch linear attention makes {TIMES:g} times the images per "
    "second of cached softmax or more, each at its best batch (whole interval of the median ratio of the rounds), and "
    f"a late value takes at most {FLAT:g} times as long as an early one there and on linnet's engine (whole "
    "interval, rounds of every batch). Does not hold if one of these is false with its whole interval; too close to "
    "call between. Controls: a quiet machine; a stream takes exactly 270,336 and 540,672 bytes, as in the paper's "
    "networks.",
    answers={YES: "Yes, and late values cost the same", NO: "No, fewer images or dearer late values"},
    change="rounds at a batch at which cached softmax makes more than half as many images per second",
    units=units,
    read=read,
)
