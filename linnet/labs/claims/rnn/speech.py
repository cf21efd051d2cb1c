"""T11: on speech softmax attention makes fewer errors than linear attention, and linear fewer than a Bi-LSTM.

    phone error rate = edits between the phones heard and the phones spoken / phones spoken        test utterances

Katharopoulos et al. 2020, arXiv:2006.16236, table 3: 80 hours of WSJ, 9 layers, to convergence. Here: AN4, or FSDD in
strings of 3 to 7 digits, or generated speech; below the paper budget 2 or 3 layers of width 64 and equal steps, so that
none may have learned enough to be ranked. Time is measured separately and alone, on as many frames as the paper's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....train.jobs import open_data
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
    by_seed,
    mean,
    spread,
    unit,
    untested,
)
from ...core.intervals import Interval, median_interval, paired
from ...core.licence import regime, settled
from ..training import plan, seeded_model, train
from .speech_pace import FRAMES, LENGTHS, VARIANTS, pace, shape_of, speed_ratio, timed
from .variants import FEWEST, NAMES, at_most, common, curves_of, mean_curve, rows_of, scope_of, share_number

PAPER = {"softmax": ("5.12", "2711"), "linear": ("8.08", "824"), "lsh": ("9.33", "2250"), "bilstm": ("10.94", "1047")}
ORDER = (("softmax", "linear"), ("linear", "bilstm"))  # in the paper the first of each has fewer errors
LEARNED = 0.22  # phone error rate: twice that of the paper's last network
TITLES = {**NAMES, "bilstm": "the Bi-LSTM"}
CORPUS = "wsj"
SIZES_OF_PAPER = "WSJ, 80 hours, 800 frames on average, 9 layers"
CORPORA = {"an4": "AN4", "fsdd": "FSDD", "generated": "generated speech", CORPUS: "WSJ"}
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
        sizes = [(variant, seed) for seed in range(5) for variant in VARIANTS]
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
    name, steps = CORPORA[config["data"]["name"]], config["train"]["steps"]
    seeds = common({variant: errors[variant] for pair in ORDER for variant in pair})
    if seeds < FEWEST:
        return untested(f"{seeds} of {FEWEST} seeds of {steps:,} steps on {name} are there")
    speed = speed_ratio(rows)
    if speed is None:
        return untested("the time of a training step was not measured")
    state, gaps = judged(errors)
    shares = ", ".join(f"{TITLES[variant]} {100 * mean(errors[variant]):.1f} %" for variant in VARIANTS)
    sentence = f"Phone error rates after {steps:,} steps on {name}: {shares}."
    shape = shape_of("linear", FRAMES, config["model"])
    return Finding(
        Evidence(state, regime_of(by_variant["linear"]), controls(by_variant, errors), seeds),
        sentence,
        numbers(errors, gaps, speed),
        scope_of(name, shape.d_model, shape.n_layers, steps, seeds),
        MEANINGS[state],
        [table(by_variant, errors, rows)],
        charts(by_variant, rows, name),
    )


def judged(errors: Mapping[str, Mapping[int, float]]) -> tuple[str, dict[tuple[str, str], Interval]]:
    """Return the state, and for each pair of ORDER the errors that the second makes in addition; first what decides."""
    gaps = {(a, b): paired(errors[b], errors[a]) for a, b in ORDER}
    if any(gap.high < 0 for gap in gaps.values()):
        return NO, dict(sorted(gaps.items(), key=lambda pair: pair[1].high))
    state = YES if all(gap.low > 0 for gap in gaps.values()) else OPEN
    return state, dict(sorted(gaps.items(), key=lambda pair: pair[1].low))


def controls(by_variant: Mapping[str, list[Row]], errors: Mapping[str, Mapping[int, float]]) -> list[Control]:
    """Return that the networks to be compared with learned to hear phones, and that no error rate still fell."""
    floors = [
        at_most(TITLES[one], mean(errors[one]), LEARNED, "has a phone error rate of {}")
        for one in ("softmax", "bilstm")
    ]
    right = {
        one: [[[step, 1 - per] for step, per in curve] for curve in curves_of(by_variant[one])]
        for one in ("softmax", "linear", "bilstm")
    }
    return [*floors, *(settled(TITLES[one], of, what="share of phones right") for one, of in right.items())]


def regime_of(mine: Sequence[Row]) -> Regime:
    """Return the regime by corpus, mean frames of an utterance as the network sees them, and layers."""
    config, how = mine[0]["config"], mine[0]["config"]["train"]
    frames = round(sum(row["metrics"]["units"] for row in mine) / (how["steps"] * how["batch_size"] * len(mine)))
    layers, name = shape_of("linear", FRAMES, config["model"]).n_layers, config["data"]["name"]
    sizes: dict[str, Any] = {"frames": (frames, FRAMES, FRAMES), "layers": (layers, 9, 9)}
    within = regime(SIZES_OF_PAPER, f"{CORPORA[name]}, {frames} frames on average, {layers} layers", **sizes)
    other = () if name == CORPUS else (f"{CORPORA[name]} (the paper has WSJ)",)
    return replace(within, outside=(*other, *within.outside))


def numbers(
    errors: Mapping[str, Mapping[int, float]], gaps: Mapping[tuple[str, str], Interval], speed: Interval
) -> list[Number]:
    lines = []
    for (first, second), gap in gaps.items():
        paper = [float(PAPER[one][0]) for one in (second, first)]
        what = f"phone error rate of {TITLES[second]} minus that of {TITLES[first]}, percentage points"
        points = Interval(100 * gap.mean, 100 * gap.low, 100 * gap.high, gap.seeds)
        lines.append(spread(what, f"{paper[0] - paper[1]:+.2f} ({paper[0]:.2f} - {paper[1]:.2f}, WSJ)", points))
    for variant in VARIANTS:
        what = f"phone error rate, {TITLES[variant]}"
        lines.append(share_number(what, f"{PAPER[variant][0]} % (WSJ)", errors[variant]))
    slower = f"time of a training step, softmax over linear, {FRAMES} frames"
    return [*lines, spread(slower, "3.29 (2711 / 824 s)", speed, "rounds")]


def table(by_variant: dict[str, list[Row]], errors: dict[str, dict[int, float]], rows: Sequence[Row]) -> Table:
    lines, seconds = [], timed(rows)
    for variant, mine in by_variant.items():
        share = share_number("", None, errors[variant])
        epoch = sum(map(seconds_per_epoch, mine)) / len(mine)
        step = median_interval(seconds[variant]).mean
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
            steps[variant].append([f"{length} frames", median_interval(seconds).mean])
    return [
        Chart(f"Phone error rate along training, {name}", "step", "phone error rate", curves,
              caption="Means over the seeds with 95 % intervals, on held-out utterances."),
        Chart("Time of a training step on the same number of frames", "frames of an utterance", "seconds", steps,
              kind="bars", caption="Medians of rounds in turns, in one process that ran alone."),
    ]  # fmt: skip


MEANINGS = {
    YES: "For speech take softmax if the error rate decides, and linear attention if long recordings or the time of "
    "training do.",
    NO: "The paper's order of networks is not the one of these recordings: compare them on your own speech.",
    OPEN: "The networks are too close to be ranked on these recordings: choose by speed and memory.",
}
CLAIM = Claim(
    name="speech",
    number="T11",
    paper="rnn",
    statement="On speech softmax makes fewer errors than linear attention, and linear fewer than a Bi-LSTM.",
    source=(
        "Table 3: on WSJ the paper prints phone error rates of 5.12 % (softmax), 8.08 % (linear), 9.33 % (Reformer, 4 "
        "rounds) and 10.94 % (Bi-LSTM), and 2,711, 824, 2,250 and 1,047 seconds per epoch: linear is 3.3 times faster "
        "than softmax and clearly worse."
    ),
    rule=(
        "yes if linear makes more errors than softmax and the Bi-LSTM more than linear, each over the whole interval "
        "of the paired differences of phone error rates; no if one of these is turned round over the whole interval; "
        f"open otherwise. Controls: softmax and the Bi-LSTM make at most {100 * LEARNED:g} % phone errors, twice what "
        "the paper prints for its last network, and the error rates of softmax, linear and Bi-LSTM fall by 2 points or "
        "less over the last quarter. Hashed attention and the time of a training step are reported, not judged. The "
        f"paper's sizes: {SIZES_OF_PAPER}."
    ),
    answers={YES: "Yes: softmax, then linear, then the Bi-LSTM", NO: "No, the networks end in another order"},
    change="five seeds on 80 hours of WSJ, trained to convergence, with another order",
    units=units,
    read=read,
    needs="an4 or fsdd; without them generated speech",
)
