"""Cross attention: an encoder-decoder learns to write a word backwards, and is timed by the length of its source.

    encode once, decode token by token        linear keeps F x V sums of a source of S tokens, softmax S keys and values

Both halves are one layer of a short convolution, so that two models differ only in the cross attention. The source has
positions, without which a word could not be reversed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ....models import EncoderDecoder, ModelConfig, build
from ...bench import timing
from ...core.claim import Config, Row, Table, rounded
from ...core.intervals import Interval, median_interval
from ..training import plan, seeded_model, train
from .sequences import Reversal
from .variants import HELD_OUT

MIXERS = ("elu", "softmax")
NAMES = {"elu": "linear", "softmax": "softmax"}


def translator(mixer: str, length: int, width: int, heads: int) -> ModelConfig:
    """Return one encoder and one decoder layer, both convolutions; the second mixer is used by cross attention only."""
    sizes: dict[str, Any] = {"d_model": width, "n_heads": heads, "d_ff": width, "n_layers": 1, "n_encoder_layers": 1}
    where: dict[str, Any] = {"positions": "learned", "max_length": length, "init_std": width**-0.5}
    return ModelConfig(task="translate", mixer=("conv", mixer), vocab_size=11, **sizes, **where)


def run_cross(config: Config) -> dict[str, Any]:
    """Train reversal; return the accuracy with teacher forcing, and the bytes that the decoder keeps of a source."""
    length, steps, seed = config["length"], config["steps"], config["seed"]
    model = seeded_model(translator(config["mixer"], length, 64, 4), seed)
    held_out = Reversal(seq_len=length, seed=seed, split="test", size=HELD_OUT)
    how = plan(steps, lr=5e-3, batch_size=32, seed=seed, warmup=steps // 20, betas=(0.9, 0.98), eval_rows=64, points=10)
    metrics = train(model, Reversal(seq_len=length, seed=seed), held_out, how, watched="accuracy")
    metrics.pop("train_seconds", None)
    assert isinstance(model, EncoderDecoder)
    with torch.no_grad():
        kept = model.encode(held_out.batch([0])["source"]).nbytes
    return metrics | {"score": metrics.get("accuracy", 0.0), "source_bytes": kept}


def time_decoding(config: Config) -> dict[str, Any]:
    """Return, for each mixer and source length, seconds per decoded token in every round, and bytes of the source."""
    torch.set_num_threads(config["threads"])
    calls, kept = {}, {}
    for mixer in MIXERS:
        torch.manual_seed(0)
        model = build(translator(mixer, max(config["sources"]), config["d_model"], config["heads"])).eval()
        assert isinstance(model, EncoderDecoder)
        for n in config["sources"]:
            with torch.no_grad():
                source = model.encode(torch.randint(11, (1, n)))
                _, state = model.step(torch.zeros(1, dtype=torch.long), source)
            calls[f"{mixer} {n}"] = partial(_step, model, source, state)
            kept[f"{mixer} {n}"] = source.nbytes
    times = timing.interleave(calls, config["rounds"], warm=1, shortest=1e-2)
    return {
        NAMES[mixer]: {
            "seconds": [[rounded(x) for x in times[f"{mixer} {n}"]] for n in config["sources"]],
            "bytes": [kept[f"{mixer} {n}"] for n in config["sources"]],
        }
        for mixer in MIXERS
    }


@torch.no_grad()
def _step(model: EncoderDecoder, source: Any, state: Any) -> None:
    model.step(torch.ones(1, dtype=torch.long), source, state)


def grows(row: Row, name: str) -> Interval:
    """Return the time of a token after the longest source over one after the shortest, round by round."""
    seconds = row["metrics"][name]["seconds"]
    return median_interval([long / short for long, short in zip(seconds[-1], seconds[0], strict=True)])


def rounds_of(row: Row) -> dict[str, list[float]]:
    """Return the seconds of every round by attention and source, for the control that the machine was quiet."""
    return {
        f"{name} after {n:,} tokens": seconds
        for name in NAMES.values()
        for n, seconds in zip(row["config"]["sources"], row["metrics"][name]["seconds"], strict=True)
    }


def decode_table(row: Row) -> Table:
    lines = [
        (name, f"{n:,}", f"{1e6 * median_interval(seconds).mean:,.0f}", f"{size:,}")
        for name in NAMES.values()
        for n, seconds, size in zip(row["config"]["sources"], *columns(row, name), strict=True)
    ]
    return Table(("cross attention", "source tokens", "us per decoded token", "bytes of source"), lines, "decoding")


def columns(row: Row, name: str) -> tuple[list[list[float]], list[int]]:
    return row["metrics"][name]["seconds"], row["metrics"][name]["bytes"]
