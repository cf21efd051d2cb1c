"""T11: where softmax wins: phones from speech by CTC, with softmax, linear and hashed attention and a Bi-LSTM.

    phone error rate = edits between the phones heard and the phones spoken / phones spoken        test utterances

Katharopoulos et al. 2020, arXiv:2006.16236, table 3: 80 hours of WSJ, 9 layers, to convergence. Here: AN4, or FSDD in
strings of 3 to 7 digits, or generated speech; 2 or 3 layers of width 64, equal steps for all, so what is compared is
how far each has come. Time is measured separately and alone: training steps on as many frames as the paper's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....train.jobs import open_data
from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Config,
    Finding,
    Row,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    mean,
    number,
    spread,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from ..training import plan, seeded_model, train
from .speech_pace import FRAMES, LENGTHS, VARIANTS, pace, shape_of, speed_ratio, timed
from .variants import FEWEST, common, mean_curve, ratio, ratio_number, rows_of

PAPER = {"softmax": ("5.12", "2711"), "linear": ("8.08", "824"), "lsh": ("9.33", "2250"), "bilstm": ("10.94", "1047")}
ORDER = (("softmax", "linear"), ("linear", "bilstm"))  # in the paper the first of each has fewer errors
LEARNT = 0.5  # error rate below which a network has learnt the task
RATES = {"bilstm": 1e-2}  # others 4e-3; the paper also gives its Bi-LSTM a higher rate
SMALL: dict[str, Any] = {"d_model": 64, "n_heads": 4, "d_ff": 256, "dropout": 0.0, "init_std": 0.125}
SETS: dict[str, dict[str, Any]] = {
    "an4": {"name": "an4", "stacked": 4, "with_deltas": True},
    "fsdd": {"name": "fsdd", "stacked": 3, "concat": [3, 7]},
    "generated": {"name": "generated", "n": 512, "noise": 0.5},
}
COSTS = {"softmax": 0.035, "linear": 0.025, "lsh": 0.055, "bilstm": 0.07}  # seconds of a step
SIZES = {"smoke": (1, 2, 4, 1), "quick": (2, 180, 8, 3), "hour": (3, 600, 8, 3)}  # layers, steps, batch, seeds


def units(setting: Setting) -> list[Unit]:
    data = SETS[next((name for name in ("an4", "fsdd") if name in setting.data), "generated")]
    if setting.budget == "paper":
        how = {"steps": 20_000, "batch_size": 16, "schedule": "plateau"}
        sizes = [(variant, seed) for seed in range(3) for variant in VARIANTS]
        data = {**data, "stacked": 1} if "stacked" in data else data
        work = [one(variant, data, seed, {}, {**how, **published(variant)}, 1e5) for variant, seed in sizes]
        return [*work, pace({}, 9, 60.0)]
    if setting.budget == "smoke":
        data = {"name": "generated", "n": 16}
    layers, steps, batch, seeds = SIZES[setting.budget]
    work = []
    for variant, seed in ((variant, seed) for seed in range(seeds) for variant in VARIANTS):
        if seed and variant == "lsh" and setting.budget == "quick":
            continue  # the slowest kind of attention, not needed for the verdict
        how = {
            "steps": steps,
            "batch_size": batch,
            "lr": RATES.get(variant, 4e-3),
            "min_lr": 1e-4,
            "warmup": steps // 10,
        }
        shape = {**SMALL, "n_layers": 1 if variant == "bilstm" else layers}
        work.append(one(variant, data, seed, shape, how, steps * COSTS[variant]))
    timing = {"smoke": pace(SMALL, 1, 0.5, [40]), "quick": pace(SMALL, 9, 5.0), "hour": pace(SMALL, 25, 12.0)}
    return [*work, timing[setting.budget]]


def published(variant: str) -> dict[str, Any]:
    """Return the paper's optimizers; these sets are small, so they have fewer steps than WSJ."""
    return {"lr": 1e-3} if variant == "bilstm" else {"lr": 1e-4, "optimizer": "radam"}


def one(variant: str, data: Config, seed: int, model: Config, how: Config, seconds: float) -> Unit:
    config = {"experiment": "speech", "arm": variant, "seed": seed, "data": data, "model": model, "train": how}
    return unit(run, config, seconds)


def run(config: Config) -> dict[str, Any]:
    """Return the phone error rate on the test split, and on held-out utterances during training."""
    data = open_data("speech", config["data"], None, begun=False)
    assert data.test is not None
    shape = shape_of(config["arm"], data.fields["max_length"] // 2, config["model"]).replace(**data.fields)
    how = plan(points=10, **config["train"], seed=config["seed"], eval_rows=48)
    metrics = train(seeded_model(shape, config["seed"]), data.train, data.valid, how, test=data.test, watched="per")
    return {**metrics, "utterances": data.train.length}


def read(rows: Sequence[Row]) -> Finding:
    trained = [row for row in rows if row["config"]["experiment"] == "speech"]
    by_variant = {variant: rows_of(trained, variant) for variant in VARIANTS}
    for variant, mine in by_variant.items():
        if not mine:
            return untested(f"there is no finished run of {variant}")
    errors = {variant: by_seed(mine, "per") for variant, mine in by_variant.items()}
    config = by_variant["linear"][0]["config"]
    name, steps = config["data"]["name"], config["train"]["steps"]
    seeds = common({variant: errors[variant] for pair in ORDER for variant in pair})
    if seeds < FEWEST:
        return untested(f"there are {seeds} seeds of {steps} steps on {name}; an interval needs {FEWEST}")
    speed = speed_ratio(rows)
    if speed is None:
        return untested("the time of a training step was not measured")
    outcome, why = verdict(errors, speed)
    shares = ", ".join(f"{variant} {100 * mean(errors[variant]):.1f} %" for variant in VARIANTS)
    sentence = f"Phone error rates after {steps} steps on {name}: {shares}; {why}."
    what = f"phone error rate of linear attention over that of softmax, {steps} steps on {name}"
    numbers = [ratio_number(what, "1.58 (8.08 / 5.12)", errors["linear"], errors["softmax"])]
    for variant in VARIANTS:
        values = [100 * value for value in errors[variant].values()]
        numbers.append(number(f"phone error rate, {variant}, {name}", f"{PAPER[variant][0]} % (WSJ)", values, unit="%"))
    slower = f"time of a training step, softmax over linear, {FRAMES} frames"
    numbers.append(spread(slower, "3.29 (2711 / 824 s)", speed, "rounds"))
    meaning = MEANINGS[outcome].format(faster=figures(speed.mean), frames=FRAMES)
    meaning += AHEAD if outcome == REFUTED and mean(errors["bilstm"]) < mean(errors["linear"]) else ""
    return Finding(
        outcome, sentence, numbers, meaning, [table(by_variant, errors, rows)], charts(by_variant, rows, name)
    )


def verdict(errors: dict[str, dict[int, float]], speed: Interval) -> tuple[str, str]:
    """Return outcome and reason."""
    deaf = [variant for variant in ("softmax", "linear", "bilstm") if mean(errors[variant]) >= LEARNT]
    judged = [pair for pair in ORDER if not set(pair) & set(deaf)]
    ways = {f"{a} before {b}": ratio(errors[b], errors[a]) for a, b in judged} | {"linear faster than softmax": speed}
    against = [name for name, one in ways.items() if one.high < 1]
    if against:
        return REFUTED, f"turned round here, over the whole interval: {', '.join(against)}"
    open_ = [name for name, one in ways.items() if one.low <= 1]
    if deaf:
        return UNCLEAR, f"not yet below {100 * LEARNT:.0f} %, so not judged: {', '.join(deaf)}"
    if open_:
        return UNCLEAR, f"the intervals do not decide: {', '.join(open_)}"
    return CONFIRMED, f"the paper's order, and softmax takes {figures(speed.mean)} times as long at {FRAMES} frames"


def table(by_variant: dict[str, list[Row]], errors: dict[str, dict[int, float]], rows: Sequence[Row]) -> Table:
    lines, seconds = [], timed(rows)
    for variant, mine in by_variant.items():
        share = number("", None, [100 * value for value in errors[variant].values()], unit="%")
        epoch = sum(map(seconds_per_epoch, mine)) / len(mine)
        step = interval(seconds[variant]).mean
        size = f"{mine[0]['metrics']['parameters']:,}"
        cells = (share.shown(), share.spread(), f"{epoch:.1f}", f"{1000 * step:.0f}")
        lines.append((variant, size, f"{PAPER[variant][0]} %", *cells[:2], PAPER[variant][1], *cells[2:]))
    head = (
        "network", "parameters", "error, the paper's (WSJ)", "error", "interval", "s/epoch, the paper's",
        "s/epoch, two at once", f"ms/step alone, {FRAMES} frames",
    )  # fmt: skip
    return Table(head, lines, "Phones of test utterances")


def seconds_per_epoch(row: Row) -> float:
    how, metrics = row["config"]["train"], row["metrics"]
    return float(metrics["train_seconds"] / how["steps"] * metrics["utterances"] / how["batch_size"])


def charts(by_variant: dict[str, list[Row]], rows: Sequence[Row], name: str) -> list[Chart]:
    curves = {variant: mean_curve(mine) for variant, mine in by_variant.items()}
    steps: dict[str, list[list[Any]]] = {variant: [] for variant in VARIANTS}
    for length in LENGTHS:
        for variant, seconds in timed(rows, length).items():
            steps[variant].append([f"{length} frames", interval(seconds).mean])
    return [
        Chart(f"Phone error rate along training, {name}", "step", "phone error rate", curves,
              caption="Means over the seeds with 95 % intervals, on held-out utterances."),
        Chart("Time of a training step on the same number of frames", "frames of an utterance", "seconds", steps,
              kind="bars", caption="In turns in one process, with nothing beside it."),
    ]  # fmt: skip


AHEAD = (
    " The Bi-LSTM is ahead of linear attention: it hears what is near without having to learn where to look, which "
    "counts most early in training; the paper trained on 80 hours to convergence."
)
MEANINGS = {
    CONFIRMED: "For speech take softmax if the error rate decides, and linear attention if long recordings or the time "
    "of training do: it trains {faster} times as fast at {frames} frames here.",
    REFUTED: "The paper's order does not hold for small networks, little speech and few steps: compare on your own "
    "speech. A step of linear attention is {faster} times as fast as one of softmax at {frames} frames here.",
    UNCLEAR: "At this size and with so few steps the networks are too close, or too far from trained, to be ranked; a "
    "step of linear attention is {faster} times as fast as one of softmax at {frames} frames here.",
}
CLAIM = Claim(
    name="speech",
    number="T11",
    paper="rnn",
    question="For recognising speech, how much worse is linear attention than softmax, and how much faster?",
    statement=(
        "Table 3: on WSJ the paper prints phone error rates of 5.12 % (softmax), 8.08 % (linear), 9.33 % (Reformer, 4 "
        "rounds) and 10.94 % (Bi-LSTM), and 2,711, 824, 2,250 and 1,047 seconds per epoch: linear is 3.3 times faster "
        "than softmax and clearly worse."
    ),
    rule=(
        "confirmed if the error rate of softmax is below that of linear and that of linear below that of the Bi-LSTM, "
        "and a training step of linear takes less time than one of softmax at 800 frames, each over the whole interval "
        "(3 seeds, rounds); refuted if one of these is turned round over the whole interval; unclear otherwise; an arm "
        "still above 50 % errors is not judged"
    ),
    units=units,
    read=read,
    needs="an4 or fsdd; without them generated speech",
)
