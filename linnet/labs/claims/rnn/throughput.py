"""T8: values and images per second with many parallel streams, early and late in an image; and bytes per stream.

    images per second = streams / (N x mean of (seconds per step early, seconds per step late))

Tables 1, 2 and 4 of arXiv:2006.16236, which compare each method at the batch that suits it. Steps of linear attention
and of cached softmax take turns at the beginning of an image and 128 values before its end (streams.py); a cached step
costs a + b n, so the mean of both is that of an image. Softmax without a cache: generation.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ...bench.decode import SIZES
from ...core.claim import (
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
from ...core.intervals import interval
from .generation import PRESETS, TITLES, image_seconds, matches, recomputed, recomputing, size
from .image_decode_timing import CACHE, ENGINE, TORCH
from .streams import EARLY, LATE, PLACES, WINDOW, measure

EXPERIMENT = "throughput"
CACHE_BYTES = 2 * 10**9
STATE_BYTES = {"mnist": 270_336, "cifar10": 540_672}  # 4 bytes x layers x H (D V + D), H = 8, D = V = 32
FLAT = 0.1  # tolerance of late / early around 1
PAPER_CACHED = {"mnist": "18.9 (142.8 / 7.56 images/s, GPU)", "cifar10": "55.8 (17.85 / 0.32 images/s, GPU)"}
PAPER_AGAIN = {"mnist": "317 against uncached (GPU)", "cifar10": "4,462 against uncached (GPU)"}


def units(setting: Setting) -> list[Unit]:
    smoke = setting.budget == "smoke"
    batches = {"smoke": [1, 4], "quick": [1, 8, 64], "hour": [1, 8, 64, 256], "paper": [1, 8, 64, 256, 1024]}
    rounds = {"smoke": 1, "quick": 3}.get(setting.budget, 9)
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


def drift(row: Row, variant: str) -> float:
    """Return values per second late / early, of the fastest round of each: load only makes a round slower."""
    return max(rates(row, variant, LATE)) / max(rates(row, variant, EARLY))


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
    outcome, sentence = verdict(by_preset)
    return Finding(
        outcome, sentence, numbers(by_preset, rows), meaning(by_preset), tables(by_preset), [chart(by_preset)]
    )


def verdict(by_preset: dict[str, list[Row]]) -> tuple[str, str]:
    gains = {preset: interval(gain(some, TORCH)) for preset, some in by_preset.items()}
    rises = all(
        rates_of(some, variant)[-1] > rates_of(some, variant)[0]
        for some in by_preset.values()
        for variant in (ENGINE, TORCH)
    )
    drifts = {preset: drift(best(some, TORCH), TORCH) for preset, some in by_preset.items()}
    falls = {preset: drift(best(some, CACHE), CACHE) for preset, some in by_preset.items()}
    exact = all(row["metrics"]["bytes"]["linear"] == STATE_BYTES[p] for p, some in by_preset.items() for row in some)
    sentence = "; ".join(
        f"{TITLES[p]}: {figures(gains[p].mean)} times the images per second of cached softmax in the same plain torch, "
        f"late / early values per second {figures(drifts[p])} for linear and {figures(falls[p])} for cached softmax"
        for p in by_preset
    )
    sentence += "; " + ("more streams give more values per second" if rises else "more streams do not give more values")
    sentence += "" if exact else "; the state of a stream is not of the size the paper's model has"
    if any(one.high < 1 for one in gains.values()) or not exact:
        return REFUTED, sentence
    level = all(abs(value - 1) <= FLAT for value in drifts.values())
    if all(one.low > 1 for one in gains.values()) and rises and level and max(falls.values()) < 1 - FLAT:
        return CONFIRMED, sentence
    return UNCLEAR, sentence


def rates_of(rows: Sequence[Row], variant: str) -> list[float]:
    """Return early values per second by batch, the smallest first."""
    return [median(rates(row, variant, EARLY)) for row in sorted(rows, key=lambda row: int(row["config"]["batch"]))]


def numbers(by_preset: dict[str, list[Row]], rows: Sequence[Row]) -> list[Number]:
    lines = []
    for preset, some in by_preset.items():
        title = TITLES[preset]
        what = f"{title}, images/s of linear / cached softmax, both in the same plain torch, each at its best batch"
        lines.append(number(what, PAPER_CACHED[preset], gain(some, TORCH), "rounds"))
        uncached = recomputed(rows, preset, "softmax")
        assert uncached is not None
        top = median(images(best(some, TORCH), TORCH))
        what = f"{title}, images/s of linear in plain torch, many at once / softmax without a cache, one at a time"
        lines.append(number(what, PAPER_AGAIN[preset], [top * s for s in image_seconds(uncached)], "rounds"))
        held = some[0]["metrics"]["bytes"]
        what = f"{title}, bytes of keys and values of a full image / bytes of the linear state, one stream"
        lines.append(Number(what, None, held["cached"] / held["linear"]))
    return lines


def meaning(by_preset: dict[str, list[Row]]) -> str:
    parts = " and ".join(f"{figures(median(gain(some, ENGINE)))} for {TITLES[p]}" for p, some in by_preset.items())
    return (
        "The paper's 317 and 4,462 are against softmax without a cache (against uncached), on a GPU and at batches of "
        "their own; against a cache its tables give 18.9 and 55.8. On this machine linnet's engine makes "
        f"{parts} times the images per second of cached softmax in plain torch. What lets many streams run at once is "
        "that the state of a stream is small and does not grow."
    )


def tables(by_preset: dict[str, list[Row]]) -> list[Table]:
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
                        figures(drift(row, variant)),
                        rate,
                    )
                )
        held = some[0]["metrics"]["bytes"]
        sizes.append((TITLES[preset], f"{held['linear']:,}", f"{held['cached']:,}"))
    head = ("model", "arm", "streams", "values/s early", "values/s late", "late / early", "images/s")
    bytes_head = ("model", "bytes, linear, at any length", "bytes, cached softmax, at full length")
    return [Table(head, speeds, "Streams at once"), Table(bytes_head, sizes, "One stream")]


def chart(by_preset: dict[str, list[Row]]) -> Chart:
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


CLAIM = Claim(
    name="throughput",
    number="T8",
    paper="rnn",
    question="How many images per second can be made with many at once, against softmax with and without a cache?",
    statement="On a GPU (tables 1, 2 and 4) the paper prints 142.8 (MNIST) and 17.85 (CIFAR-10) images per second for "
    "linear attention, 7.56 and 0.32 for softmax with cached keys and values (linear is 18.9 and 55.8 times as fast), "
    "and 0.45 and 0.004 for softmax that recomputes its prefix (317 and 4,462 times, against uncached).",
    rule="Confirmed if, at both sizes and in the same plain torch, linear attention makes more images per second than "
    "cached softmax, each at its best batch (interval over rounds above 1); its values per second rise from one stream "
    f"to many and late ones stay within {FLAT:.0%} of early ones (fastest rounds), while those of cached softmax fall "
    f"by more than {FLAT:.0%}; and a stream takes exactly 270,336 and 540,672 bytes. Refuted if linear attention makes "
    "fewer images at one of the sizes (interval below 1), or the bytes differ.",
    units=units,
    read=read,
)
