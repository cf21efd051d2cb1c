"""T10: linear and softmax attention trained for the same time on images of 1,024 values: who makes more of it?

    updates of linear / updates of softmax,   bits per value of linear - bits per value of softmax,   at equal seconds

Table 2 of arXiv:2006.16236 gives each method seven days. Here both variants of a seed start from the same weights, see
the same images in the same order and have the same number of seconds, without evaluations. Images of 128 values, with
as many values per update, are the control: softmax is hardly slower there, so the advantage must vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from ....data import ImageSource
from ....models import Model, preset
from ....train import Event, TrainConfig, TrainingDiverged, evaluate, fit
from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Config,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    number,
    rounded,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from ..training import seeded_model
from .grey_images import LONG, SHORT, images
from .variants import FEWEST, mixer_of

EXPERIMENT = "equal time"
LINEAR, SOFTMAX = "linear", "softmax"
ENOUGH, GONE = 2.0, 1.5  # times the updates: at LONG at least, at SHORT at most
MARKS = 5  # points of a curve
UNIFORM = 8.0  # bits per value of a uniform guess over 256 values


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
        "paper": {LONG: 7 * 86_400.0, SHORT: 7 * 86_400.0},
    }[setting.budget]
    data = "cifar10" if "cifar10" in setting.data else "drawn"
    work = []
    for length in (LONG, SHORT):
        held_out = LONG * (1 if setting.budget == "smoke" else 32)  # values that a score is of
        how = {**sizes, "data": data, "held_out": held_out, "length": length, "batch": 2 * LONG // length, "lr": 1e-3}
        for seed in range(1 if setting.budget == "smoke" else 3):
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


class TimeUp(Exception):
    """Ends a run whose seconds are over."""


class Stopwatch:
    """Counts from the first update, pauses during evaluations, and raises TimeUp."""

    def __init__(self, model: Model, held_out: ImageSource, seconds: float, batch: int, rows: int) -> None:
        self.model, self.held_out, self.seconds = model, held_out, seconds
        self.batch, self.rows = batch, rows
        self.began, self.updates = 0.0, 0
        self.curve: list[list[float]] = []  # seconds, updates, bits

    def __call__(self, event: Event) -> None:
        if event.kind != "step":
            return
        if event.step == 1:
            self.began = perf_counter()
            return
        self.updates = event.step - 1
        spent = perf_counter() - self.began
        if spent >= self.seconds * (len(self.curve) + 1) / MARKS:
            self._mark(spent)

    def _mark(self, spent: float) -> None:
        paused = perf_counter()
        bits = evaluate(self.model, self.held_out, batch_size=self.batch, rows=self.rows)["bits_per_dim"]
        self.curve.append([rounded(spent), self.updates, rounded(bits)])
        if spent >= self.seconds:
            raise TimeUp
        self.began += perf_counter() - paused


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
        return untested("both arms need half a minute of training before they beat a uniform guess: take --budget hour")
    whole = [row for row in rows if None not in [row["metrics"][variant]["bits"] for variant in (LINEAR, SOFTMAX)]]
    for length in (LONG, SHORT):
        seeds = sum(row["config"]["length"] == length for row in whole)
        if seeds < FEWEST:
            return untested(f"{seeds} seeds at {length:,} values, and the rule wants {FEWEST} or more")
    worst = max(row["metrics"][variant]["bits"] for row in whole for variant in (LINEAR, SOFTMAX) if is_long(row))
    if worst >= UNIFORM:
        return untested(
            f"{figures(worst)} bits per value after {figures(seconds_of(whole, LONG))} s is more than a uniform guess "
            f"needs, {UNIFORM:g}: too little was learned to compare; take a larger budget or a machine with less to do"
        )
    outcome, sentence = verdict(whole)
    return Finding(outcome, sentence, numbers(whole), meaning(whole), [table(whole)], [chart(whole)])


def is_long(row: Row) -> bool:
    return bool(row["config"]["length"] == LONG)


def verdict(rows: Sequence[Row]) -> tuple[str, str]:
    more, control = (interval(ratios(rows, length)) for length in (LONG, SHORT))
    bits = interval(differences(rows, LONG))
    seconds = figures(seconds_of(rows, LONG))
    sentence = (
        f"in the same {seconds} s linear attention makes {figures(more.mean)} times the updates at {LONG:,} values and "
        f"{figures(control.mean)} times at {SHORT}; at {LONG:,} its bits per value minus those of softmax are "
        f"{bits.mean:+.3f} [{bits.low:+.3f}, {bits.high:+.3f}]"
    )
    if bits.low > 0 or more.high < 1:
        return REFUTED, sentence
    if more.mean >= ENOUGH and bits.high <= 0 and control.mean <= GONE:
        return CONFIRMED, sentence
    return UNCLEAR, sentence


def seconds_of(rows: Sequence[Row], length: int) -> float:
    return max(float(row["config"]["seconds"]) for row in rows if row["config"]["length"] == length)


def numbers(rows: Sequence[Row]) -> list[Number]:
    what = "updates of linear / softmax in the same seconds"
    apart = "bits per value, linear - softmax, after the same seconds"
    return [
        number(f"{LONG:,} values, {what}", "about 3 times the epochs in 7 days, 3,072 values", ratios(rows, LONG)),
        number(f"{LONG:,} values, {apart}", "-0.07 (3.40 and 3.47)", differences(rows, LONG)),
        number(f"{SHORT} values (control), {what}", None, ratios(rows, SHORT)),
        number(f"{SHORT} values (control), {apart}", None, differences(rows, SHORT)),
    ]


def meaning(rows: Sequence[Row]) -> str:
    more, less = (interval(ratios(rows, length)).mean for length in (LONG, SHORT))
    bits = interval(differences(rows, LONG))
    ends = "ends ahead" if bits.high < 0 else "ends behind" if bits.low > 0 else "ends no different"
    return (
        f"With a fixed time to train, linear attention gets {figures(more)} times the updates on sequences of {LONG:,} "
        f"values and {ends} in bits per value; at {SHORT} values it gets {figures(less)} times. These are small models "
        "and short runs: the order at the end of a long one may be another."
    )


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
    data = {"drawn": "drawn images"}.get(rows[0]["config"]["data"], "CIFAR-10 in grey")
    return Table(
        ("values", "attention", "seconds", "updates", "bits per value"), lines, f"{data}, {len(rows) // 2} seeds"
    )


def chart(rows: Sequence[Row]) -> Chart:
    """Draw the mean over the seeds at every mark of the clock."""
    series = {}
    for length in (LONG, SHORT):
        for variant in (LINEAR, SOFTMAX):
            curves = [row["metrics"][variant]["curve"] for row in rows if row["config"]["length"] == length]
            marks = zip(*curves, strict=False)
            series[f"{variant}, {length:,}"] = [tuple(np.mean(mark, axis=0)[[0, 2]].tolist()) for mark in marks]
    return Chart("Held-out images by time", "seconds of training", "bits per value", series)


CLAIM = Claim(
    name="equal-time",
    number="T10",
    paper="rnn",
    question="With the same time to train, does linear attention end better because it gets through more of the data?",
    statement="CIFAR-10 (table 2), seven days for each method: the paper prints 3.40 bits per value for linear "
    "attention and 3.47 for softmax, and credits the difference to three times as many epochs.",
    rule=f"Images of {LONG:,} values, the same seconds for both. Confirmed if linear attention makes at least "
    f"{ENOUGH:g} times the updates and its bits per value are not above those of softmax (interval of the paired "
    f"difference), and at {SHORT} values, the control, it makes at most {GONE:g} times the updates. Refuted if its "
    f"bits per value are above those of softmax (interval above 0) or it makes fewer updates. {FEWEST} seeds or more, "
    f"all below the {UNIFORM:g} bits of a uniform guess.",
    units=units,
    read=read,
    needs="cifar10; without it gradients and shapes that are drawn",
)
