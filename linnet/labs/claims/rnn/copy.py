"""T6: linear attention learns to copy a word down to the loss of softmax attention.

    w1 ... wn 0 w1 ... wn        10 symbols; scored on the n copied symbols only (linnet/labs/recall/tasks/copy_task.py)

Katharopoulos et al. 2020, arXiv:2006.16236, figure 2: 128 tokens, 4 layers, 10,000 steps. Below the paper budget the
words are shorter and the network smaller, with one learning rate for all variants. The held-out losses at the end
decide, if softmax copies 99 % of the symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....models import ModelConfig
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
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
from ...core.intervals import interval
from ...core.licence import converged, learned, regime
from ...recall.run import Recaller
from ...recall.tasks import CopyTask
from ..open.verdict_logic import below
from ..training import plan, seeded_model, train
from .variants import (
    FEWEST,
    NAMES,
    VARIANTS,
    common,
    curves_of,
    geometric,
    mean_curve,
    mixer_of,
    ratio,
    ratio_number,
    rows_of,
    scope_of,
    share_number,
)

TEST_ROWS = 512
LEARNED = 0.99  # of the symbols, by softmax
WITHIN = 2.0  # times the loss of softmax; figure 2 has a logarithmic axis
PAPER = "128 tokens, 4 layers of width 256, 10,000 steps"
SMALL: dict[str, Any] = {"d_model": 64, "n_layers": 2, "n_heads": 4}
PUBLISHED: dict[str, Any] = {"d_model": 256, "n_layers": 4, "n_heads": 8, "mlp": "relu", "dropout": 0.1}
ADAMW: dict[str, Any] = {"batch_size": 32, "lr": 4e-3, "min_lr": 1e-4, "warmup": 40}
RADAM: dict[str, Any] = {"batch_size": 64, "lr": 1e-3, "min_lr": 1e-4, "optimizer": "radam", "clip_each": 1.0}


def units(setting: Setting) -> list[Unit]:
    if setting.budget == "smoke":
        return [one(variant, 20, 0, SMALL, {"steps": 2, **ADAMW, "warmup": 1}, 0.3) for variant in VARIANTS]
    if setting.budget == "paper":
        sizes = [(variant, seed) for seed in range(5) for variant in VARIANTS]
        return [one(variant, 128, seed, PUBLISHED, {"steps": 10_000, **RADAM}, 20_000.0) for variant, seed in sizes]
    length, steps, seeds = (20, 400, 3) if setting.budget == "quick" else (32, 800, 3)
    guess = steps * length * 8e-4
    work = [
        one(variant, length, seed, SMALL, {"steps": steps, **ADAMW}, guess)
        for seed in range(seeds)
        for variant in VARIANTS
    ]
    if setting.budget == "hour":  # how much harder twice the length is
        work += [one(variant, 64, 0, SMALL, {"steps": steps, **ADAMW}, 2 * guess) for variant in VARIANTS[:2]]
    return work


def one(variant: str, length: int, seed: int, model: Config, how: Config, seconds: float) -> Unit:
    config = {"experiment": "copy", "arm": variant, "length": length, "seed": seed}
    return unit(run, {**config, "model": {**model, **mixer_of(variant, length)}, "train": how}, seconds)


def run(config: Config) -> dict[str, Any]:
    """Return held-out loss and accuracy on the copied symbols, during training and at the end."""
    length, seed = config["length"], config["seed"]
    shape: dict[str, Any] = {"vocab_size": CopyTask().vocab_size, "positions": "learned", "max_length": length}
    width = config["model"]["d_model"]
    model = seeded_model(ModelConfig(**shape, init_std=width**-0.5, **config["model"]), seed, Recaller)
    held_out = CopyTask(seq_len=length, seed=seed, split="test", size=TEST_ROWS)
    how = plan(**config["train"], seed=seed, eval_rows=128)
    return train(model, CopyTask(seq_len=length, seed=seed), held_out, how, watched=("loss", "accuracy"))


def read(rows: Sequence[Row]) -> Finding:
    length = longest(rows)
    by_variant = {variant: rows_of(rows, variant, length=length) for variant in VARIANTS}
    for variant, mine in by_variant.items():
        if not mine:
            return untested(f"there is no finished run of {variant} attention")
    right = {variant: by_seed(mine, "accuracy") for variant, mine in by_variant.items()}
    loss = {variant: by_seed(mine, "loss") for variant, mine in by_variant.items()}
    seeds, config = common(loss), by_variant["linear"][0]["config"]
    steps = config["train"]["steps"]
    if seeds < FEWEST:
        return untested(f"{seeds} of {FEWEST} seeds of {steps} steps are there")
    to_softmax = ratio(loss["linear"], loss["softmax"])
    shares = ", ".join(f"{NAMES[variant]} {figures(100 * mean(values))} %" for variant, values in right.items())
    sentence = (
        f"After {steps:,} steps on {length} tokens the held-out loss of linear attention is {figures(to_softmax.mean)} "
        f"times that of softmax; the copied symbols right are: {shares}."
    )
    controls = [
        learned("softmax", mean(right["softmax"]), LEARNED, "share of the symbols right"),
        *(converged(variant, curves_of(by_variant[variant])) for variant in ("softmax", "linear")),
    ]
    state = below(to_softmax, WITHIN)
    width, layers = config["model"]["d_model"], config["model"]["n_layers"]
    return Finding(
        Evidence(state, regime_of(config), controls, to_softmax.seeds),
        sentence,
        numbers(loss, right),
        scope_of(f"{length} tokens", width, layers, steps, seeds),
        MEANINGS[state],
        [table(rows)],
        charts(by_variant, length),
    )


def longest(rows: Sequence[Row]) -> int:
    """Return the longest length with enough seeds of every variant, or the shortest if there is none."""
    lengths = sorted({int(row["config"]["length"]) for row in rows})
    enough = [
        length
        for length in lengths
        if common({one: by_seed(rows_of(rows, one, length=length), "loss") for one in VARIANTS}) >= FEWEST
    ]
    return max(enough, default=min(lengths, default=0))


def regime_of(config: Config) -> Regime:
    model, steps, length = config["model"], config["train"]["steps"], config["length"]
    sizes: dict[str, Any] = {
        "tokens": (length, 128, 128),
        "layers": (model["n_layers"], 4, 4),
        "width": (model["d_model"], 256, 256),
        "steps": (steps, 10_000, 10_000),
    }
    here = f"{length} tokens, {model['n_layers']} layers of width {model['d_model']}, {steps:,} steps"
    return regime(PAPER, here, **sizes)


def numbers(loss: Mapping[str, Mapping[int, float]], right: Mapping[str, Mapping[int, float]]) -> list[Number]:
    lines = []
    for variant, paper in (("softmax", "about 1 (figure 2, no number)"), ("lsh", "below 1 (figure 2, no number)")):
        what = f"held-out loss of linear attention over that of {NAMES[variant]}, equal steps"
        lines.append(ratio_number(what, paper, loss["linear"], loss[variant]))
    kinds = ("linear", "softmax", "lsh")
    return lines + [share_number(f"symbols copied right, {NAMES[one]} attention", None, right[one]) for one in kinds]


def table(rows: Sequence[Row]) -> Table:
    """Return every length and variant."""
    lines = []
    for length in sorted({row["config"]["length"] for row in rows}):
        for variant in VARIANTS:
            mine = rows_of(rows, variant, length=length)
            if mine:
                right, loss = (interval(list(by_seed(mine, name).values())) for name in ("accuracy", "loss"))
                seconds = sum(row["metrics"]["train_seconds"] for row in mine) / len(mine)
                cells = (f"{100 * right.mean:.1f} %", f"{loss.mean:.4f}", str(right.seeds), f"{seconds:.0f}")
                lines.append((f"{length}", variant, *cells))
    head = ("tokens", "attention", "symbols right", "held-out loss, nats", "seeds", "seconds of training")
    return Table(head, lines, "The copy task, held-out words")


def charts(by_variant: dict[str, list[Row]], length: int) -> list[Chart]:
    caption = "Means over the seeds with 95 % intervals; words that were never trained on."
    losses = {variant: mean_curve(mine, 1, geometric) for variant, mine in by_variant.items()}
    rights = {variant: mean_curve(mine, 2) for variant, mine in by_variant.items()}
    names = [f"Copying, {length} tokens: {what}" for what in ("loss", "accuracy")]
    return [
        Chart(names[0], "step", "held-out loss, nats", losses, log_y=True, caption=caption),
        Chart(names[1], "step", "symbols right", rights, caption=caption, y_range=(0.0, 1.0)),
    ]


MEANINGS = {
    YES: "A task that needs one exact token from far back can be learned by linear attention as well as by softmax at "
    "this size: choose by speed and memory.",
    NO: "For copying exact tokens linear attention is behind softmax here: prefer softmax, or add a convolution or a "
    "few softmax layers.",
    OPEN: "The seeds are too far apart to rank the two on copying: compare them on your own data.",
}
CLAIM = Claim(
    name="copy",
    number="T6",
    paper="rnn",
    statement="Linear attention learns to repeat a word it has read about as well as softmax attention.",
    source=(
        "On copying words of up to 62 symbols (figure 2) linear attention converges smoothly to the final loss of "
        "softmax and below that of Reformer with 4 rounds of hashing; the paper prints no number. It shows softmax "
        "ahead in the middle of training, and its authors' code calls the task hard for linear attention."
    ),
    rule=(
        f"yes if the held-out loss of linear attention is at most {WITHIN:g} times that of softmax over the whole "
        "interval of paired seeds (geometric mean of the ratios), no if it is above over the whole interval; open "
        "between. The longest words that all variants have three seeds of are judged. Controls: softmax copies "
        f"{100 * LEARNED:g} % of the symbols, and the losses of softmax and of linear no longer fall. Hashed attention "
        f"is reported, not judged. The paper's sizes: {PAPER}."
    ),
    answers={YES: "Yes, its final loss is about the same", NO: f"No, more than {WITHIN:g} times the loss remains"},
    change="five seeds at the paper's 128 tokens and 10,000 steps with an interval on the other side of the mark",
    units=units,
    read=read,
)
