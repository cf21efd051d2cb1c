"""A training step of a character model, mixer beside mixer: tokens per second, per cent of sgemm, memory.

    step = forward, backward and AdamW on `tokens` tokens, as tokens / T sequences of T

6 layers, width 256, 8 heads, MLP 4x, 256 characters (the preset char-6x256). The models differ in their mixer alone;
ReBased has queries and keys of width 16, as in its paper. All take turns in one process with an sgemm in every round.
E model width, H heads, D width of q and k, V of v, F features, T length, N vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import unknown
from .jobs import cores

PRESET = "char-6x256"
CHANGES: dict[str, dict[str, Any]] = {"elu": {}, "rebased": {"key_dim": 16}, "softmax": {}}
BASELINE = "softmax"
FEWEST_ROUNDS = 3
QUICK: dict[str, Any] = {"lengths": (256, 1024), "rounds": FEWEST_ROUNDS}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to time; `tokens` of a step are the same for every length and mixer."""

    lengths: tuple[int, ...] = (256, 1024, 4096)
    mixers: tuple[str, ...] = tuple(CHANGES)
    threads: int = min(2, cores())
    tokens: int = 4096
    rounds: int = 7

    def __post_init__(self) -> None:
        for name in self.mixers:
            if name not in CHANGES:
                raise unknown("mixer", name, CHANGES)
        if not self.mixers or not self.lengths:
            empty = "--lengths" if self.mixers else "--mixers"
            raise ValueError(f"{empty} has no value; give one or more, or leave the option out")
        if not 1 <= self.threads <= cores():
            raise ValueError(f"--threads is {self.threads}; accepted: 1 to {cores()}, the cores of this machine")
        if self.rounds < FEWEST_ROUNDS:
            raise ValueError(f"--rounds is {self.rounds}; accepted: {FEWEST_ROUNDS} or more, or noise decides")
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise ValueError(f"--lengths has {length}; accepted: divisors of the {self.tokens} tokens of a step")


def step_flops(config: Any, feature_dim: int | None, length: int, tokens: int) -> float:
    """Flops of forward and backward that no exact algorithm with these layers avoids; the optimizer is not counted.

    A matrix of n weights takes 2n per token forward and 4n backward. Per layer (H (2D + V) + H V + 2 d_ff) E weights,
    and N E for the head. Attention per token, head and layer: linear 14 F V (4 forward, 10 backward), softmax
    7 (D + V) (T + 1) / 2 (7 products over the visible half, of which 2 forward), where `feature_dim` is None.
    """
    V = config.head_dim or config.d_model // config.n_heads
    D = config.key_dim or V
    per_layer = config.d_model * (config.n_heads * (2 * D + 2 * V) + 2 * config.hidden)
    weights = config.n_layers * per_layer + config.vocab_size * config.d_model
    attention = 14.0 * feature_dim * V if feature_dim else 7.0 * (D + V) * (length + 1) / 2
    return tokens * (6.0 * weights + config.n_layers * config.n_heads * attention)


@dataclass(frozen=True)
class Subject:
    """One model ready to step."""

    step: Callable[[], float]
    flops: float
    parameters: int


def subject(mixer: str, length: int, tokens: int, **changes: Any) -> Subject:
    """The preset with that mixer on random characters; `changes` to its configuration make it smaller for tests."""
    import torch

    from ..models import build, preset

    torch.manual_seed(0)
    config = preset(PRESET, mixer=mixer, **{**CHANGES[mixer], **changes})
    model = build(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    drawn = torch.randint(config.vocab_size, (tokens // length, length + 1))
    batch = {"tokens": drawn[:, :-1].contiguous(), "targets": drawn[:, 1:].contiguous()}

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        total, count = model.loss(batch)
        (total / count).backward()
        optimizer.step()
        return float(total.detach() / count)

    features = getattr(model.blocks[0].mixer, "feature_map", None)
    width = None if features is None else features.feature_dim
    return Subject(step, step_flops(config, width, length, tokens), model.parameter_count())


def race(settings: TrainSettings, length: int, **changes: Any) -> dict[str, Any]:
    """One row: every mixer at one length."""
    import torch

    from ..native import memory
    from . import timing

    torch.set_num_threads(settings.threads)
    memory.keep_freed()
    entries: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {"sgemm": timing.sgemm()}
    for mixer in settings.mixers:
        one = subject(mixer, length, settings.tokens, **changes)
        one.step()  # the optimizer makes its state
        loss, extra = timing.extra_memory(one.step)
        entries[mixer] = {"parameters": one.parameters, "flops": one.flops, "loss": loss, "extra_bytes": extra}
        calls[mixer] = one.step
    times = {name: timing.summary(found) for name, found in timing.interleave(calls, settings.rounds).items()}
    rate = timing.sgemm_rate(times["sgemm"]["min_s"])
    for mixer, entry in entries.items():
        entry |= times[mixer]
        entry["tokens_per_s"] = settings.tokens / entry["min_s"]
        entry["sgemm_percent"] = 100 * entry["flops"] / entry["min_s"] / rate
        if BASELINE in times:
            entry["ratio"] = times[BASELINE]["min_s"] / entry["min_s"]
            entry["ratio_median"] = times[BASELINE]["median_s"] / entry["median_s"]
    sizes = {"length": length, "batch": settings.tokens // length, "tokens": settings.tokens}
    sgemm = {**times["sgemm"], "gflops": rate / 1e9}
    return {**sizes, "threads": settings.threads, "sgemm": sgemm, "mixers": entries}
