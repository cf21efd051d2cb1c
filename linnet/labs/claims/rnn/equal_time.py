"""T10: trained for the same time on images of 1,024 values, linear attention ends with fewer bits than softmax.

    bits per value of linear - bits per value of softmax,   updates of linear / updates of softmax,   at equal seconds

Table 2 of arXiv:2006.16236 gives each method seven days. Here both variants of a seed start from the same weights, see
the same images in the same order and have the same number of seconds, without evaluations. Images of 128 values, with
as many values per update, are run for comparison: softmax is hardly slower there, so the advantage should vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ....models import preset
from ....train import TrainConfig, TrainingDiverged, fit
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
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
    number,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from ...core.licence import quiet, regime
from ..training import seeded_model
from .grey_images import HELD_OUT, LONG, SHORT, STEP_BITS, images
from .stopwatch import Stopwatch, TimeUp
from .variants import FEWEST, at_most, mixer_of

EXPERIMENT = "equal time"
LINEAR, SOFTMAX = "linear", "softmax"
PAPER = "images of 3,072 values, 16 layers of width 256, 7 days"
WEEK = 7 * 86_400.0


def units(setting: Setting) -> list[Unit]:
    """Return one unit per seed and length: both variants in turn. None in quick, too short for either to learn."""
    if setting.budget == "quick":
        return []
    layers = 1 if setting.budget == "smoke" else 2
    changes = {"d_model": 64, "n_layers": layers, "n_heads": 4, "d_ff": 256, "dropout": 0.0}
    small = {"preset": "mnist", "changes": changes}
    sizes = small if setting.budget != "paper" else {"preset": "cifar10", "changes": {}}
    seconds = {
        "smoke": {LONG: 0.2, SHORT: 0.1},
        "hour": {LONG: 25.0, SHORT: 8.0},
        "paper": {LONG: WEEK, SHORT: WEEK},
    }[setting.budget]
    data = "cifar10" if "cifar10" in setting.data else "drawn"
    work = []
    for length in (LONG, SHORT):
        held_out = LONG * (1 if setting.budget == "smoke" else HELD_OUT)  # values that a score is of
        how = {**sizes, "data": data, "held_out": held_out, "length": length, "batch": 2 * LONG // length, "lr": 1e-3}
        for seed in range({"smoke": 1, "paper": 5}.get(setting.budget, 3)):
            config = {"experiment": EXPERIMENT, **how, "seconds": seconds[length], "seed": seed}
            work.append(unit(both, config, 2 * seconds[length] + 1.5, alone=True))
    return work


def both(config: Config) -> dict[str, Any]:
    """Train each variant for its seconds; every other seed begins with softmax."""
    variants = (LINEAR, SOFTMAX) if config["seed"] % 2 == 0 else (SOFTMAX, LINEAR)
    results = {variant: train_for(variant, config) for variant in variants}
    return {variant: results[variant] for variant in (LINEAR, SOFTMAX)}


def train_for(variant: str, config: Config) -> dict[str, Any]:
    length, batch = config["length"], config["batch"]
    fields = {**config["changes"], **mixer_of(variant, length), "max_length": length}
    model = seeded_model(preset(config["preset"], **fields), config["seed"])
    held_out = images(config["data"], length, "test")
    plan: dict[str, Any] = {"batch_size": batch, "lr": config["lr"], "schedule": "constant", "autocast": "none"}
    watch = Stopwatch(model, held_out, config["seconds"], batch, config["held_out"] // length)
    try:
        train = TrainConfig(steps=10**9, log_every=10**9, seed=config["seed"], **plan)
        fit(model, images(config["data"], length, "train"), None, train, on_event=watch)
    except TimeUp:
        return {"updates": watch.updates, "bits": watch.curve[-1][2], "curve": watch.curve}
    except TrainingDiverged:
        pass
    return {"updates": watch.updates, "bits": None, "curve": watch.curve}


def ratios(rows: Sequence[Row], length: int) -> list[float]:
    """Return updates of linear / updates of softmax, seed by seed."""
    of = [row["metrics"] for row in rows if row["config"]["length"] == length]
    return [one[LINEAR]["updates"] / max(1, one[SOFTMAX]["updates"]) for one in of]


def differences(rows: Sequence[Row], length: int) -> list[float]:
    """Return bits per value of linear minus those of softmax, seed by seed."""
    of = [row["metrics"] for row in rows if row["config"]["length"] == length]
    return [one[LINEAR]["bits"] - one[SOFTMAX]["bits"] for one in of]


def read(rows: Sequence[Row]) -> Finding:
    if not rows:
        return untested("both variants need half a minute of training to learn anything: take --budget hour")
    whole = [row for row in rows if None not in [row["metrics"][variant]["bits"] for variant in (LINEAR, SOFTMAX)]]
    for length in (LONG, SHORT):
        seeds = sum(row["config"]["length"] == length for row in whole)
        if seeds < FEWEST:
            return untested(f"{seeds} of {FEWEST} seeds at {length:,} values ended with a score")
    long = [row for row in whole if row["config"]["length"] == LONG]
    bits, more = interval(differences(whole, LONG)), interval(ratios(whole, LONG))
    seconds, config = figures(seconds_of(whole, LONG)), long[0]["config"]
    state = YES if bits.high < 0 else NO if bits.low > 0 else OPEN
    sentence = (
        f"In the same {seconds} s linear attention makes {figures(more.mean)} times the updates at {LONG:,} values; "
        f"its bits per value minus those of softmax are {bits.mean:+.3f} [{bits.low:+.3f}, {bits.high:+.3f}]."
    )
    model = preset(config["preset"], **config["changes"])
    data = NAMES[config["data"]]
    return Finding(
        Evidence(state, regime_of(config), controls(long), bits.seeds),
        sentence,
        numbers(whole),
        f"{data}, {LONG:,} values, d = {model.d_model}, {model.n_layers} layers, {seconds} s each, {bits.seeds} seeds",
        MEANINGS[state].format(more=figures(more.mean), seconds=seconds),
        [table(whole)],
        [chart(whole)],
    )


def controls(long: Sequence[Row]) -> list[Control]:
    """Return that softmax learned the images, and that the machine was as fast from mark to mark."""
    softmax = interval([row["metrics"][SOFTMAX]["bits"] for row in long]).mean
    floor = STEP_BITS[long[0]["config"]["data"]]
    pace = {variant: [one for row in long for one in paces(row["metrics"][variant])] for variant in (LINEAR, SOFTMAX)}
    return [at_most(SOFTMAX, softmax, floor, "needs {} bits per value"), quiet(pace)]


def paces(metrics: Config) -> list[float]:
    """Return the seconds of an update between each two marks of the clock."""
    marks = [[0.0, 0], *metrics["curve"]]
    return [(after[0] - before[0]) / max(1, after[1] - before[1]) for before, after in pairwise(marks)]


def regime_of(config: Config) -> Regime:
    model = preset(config["preset"], **config["changes"])
    sizes: dict[str, Any] = {"values": (config["length"], 3072, 3072), "layers": (model.n_layers, 16, 16)}
    sizes |= {"width": (model.d_model, 256, 256), "seconds": (config["seconds"], WEEK, WEEK)}
    here = f"images of {config['length']:,} values, {model.n_layers} layers of width {model.d_model}"
    return regime(PAPER, f"{here}, {config['seconds']:,g} s", **sizes)


def seconds_of(rows: Sequence[Row], length: int) -> float:
    return max(float(row["config"]["seconds"]) for row in rows if row["config"]["length"] == length)


def numbers(rows: Sequence[Row]) -> list[Number]:
    what = "updates of linear / softmax in the same seconds"
    apart = "bits per value, linear - softmax, after the same seconds"
    return [
        number(f"{LONG:,} values, {apart}", "-0.07 (3.40 and 3.47)", differences(rows, LONG)),
        number(f"{LONG:,} values, {what}", "about 3 times the epochs in 7 days, 3,072 values", ratios(rows, LONG)),
        number(f"{SHORT} values, for comparison, {apart}", None, differences(rows, SHORT)),
        number(f"{SHORT} values, for comparison, {what}", None, ratios(rows, SHORT)),
    ]


def table(rows: Sequence[Row]) -> Table:
    lines = []
    for length in (LONG, SHORT):
        for variant in (LINEAR, SOFTMAX):
            of = [row["metrics"][variant] for row in rows if row["config"]["length"] == length]
            updates, bits = ([one[name] for one in of] for name in ("updates", "bits"))
            count: Interval = interval(updates)
            lines.append(
                (f"{length:,}", variant, figures(seconds_of(rows, length)), figures(count.mean), str(interval(bits)))
            )
    head = ("values", "attention", "seconds", "updates", "bits per value")
    return Table(head, lines, NAMES[rows[0]["config"]["data"]])


def chart(rows: Sequence[Row]) -> Chart:
    """Draw the mean over the seeds at every mark of the clock."""
    series = {}
    for length in (LONG, SHORT):
        for variant in (LINEAR, SOFTMAX):
            curves = [row["metrics"][variant]["curve"] for row in rows if row["config"]["length"] == length]
            marks = zip(*curves, strict=False)
            series[f"{variant}, {length:,}"] = [tuple(np.mean(mark, axis=0)[[0, 2]].tolist()) for mark in marks]
    return Chart("Held-out images by time", "seconds of training", "bits per value", series)


NAMES = {"drawn": "drawn images", "cifar10": "CIFAR-10 in grey"}
MEANINGS = {
    YES: "With a fixed time to train on long sequences, linear attention is the better use of it here: {more} times "
    "the updates in {seconds} s, and fewer bits at the end.",
    NO: "With a fixed time to train, softmax attention is the better use of it here, although linear attention makes "
    "{more} times the updates in {seconds} s.",
    OPEN: "With a fixed time to train, {more} times the updates do not put linear attention ahead or behind within "
    "{seconds} s: compare the two on your own data.",
}
CLAIM = Claim(
    name="equal-time",
    number="T10",
    paper="rnn",
    statement="With the same time to train on images, linear attention ends with fewer bits than softmax attention.",
    source="CIFAR-10 (table 2), seven days for each method: the paper prints 3.40 bits per value for linear "
    "attention and 3.47 for softmax, and credits the difference to three times as many epochs.",
    rule=f"Images of {LONG:,} values, the same seconds for both. Yes if the bits per value of linear minus those of "
    "softmax are below 0 over the whole interval of paired seeds, no if above 0; open between. "
    "Controls: softmax needs no more bits than a histogram of the step from the value before "
    f"({STEP_BITS['cifar10']:g} for CIFAR-10 in grey, {STEP_BITS['drawn']:g} for drawn images); the machine was quiet. "
    "Convergence is not required: the time is the same, as in the paper. Updates, and images of "
    f"{SHORT} values, are reported, not judged. The paper's sizes: {PAPER}.",
    answers={YES: "Yes, it makes better use of the time", NO: "No, softmax ends with fewer bits"},
    change="five seeds at the paper's 3,072 values and seven days with an interval on the other side of 0",
    units=units,
    read=read,
    needs="cifar10; without it gradients and shapes that are drawn",
)
