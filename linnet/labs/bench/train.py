"""Time a training step of a character model for each mixer: tokens per second, per cent of sgemm, memory.

    step = forward, backward and AdamW on `tokens` tokens, as tokens / T sequences of T

6 layers, width 256, 8 heads, MLP 4x, 256 characters (the preset char-6x256). The models differ only in their mixer;
ReBased has queries and keys of width 16, as in its paper; Mamba and Mamba-2 are twice as wide as the model, as in
theirs. All take turns in one process with an sgemm in every round.
E model width, H heads, D width of q and k, V of v, F features, T length, N vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...errors import unknown
from .checks import check_given, check_rounds, cores

PRESET = "char-6x256"
USUAL = ("elu", "rebased", "softmax")
RECURRENT = ("retnet", "gla", "mamba2", "delta", "gated_delta", "kda", "rwkv7", "mamba", "rwkv4")
CHANGES: dict[str, dict[str, Any]] = {name: {} for name in USUAL + RECURRENT} | {"rebased": {"key_dim": 16}}
BASELINE, YARDSTICK = "softmax", "elu"
FEWEST_ROUNDS = 3
QUICK: dict[str, Any] = {"lengths": (256, 1024), "rounds": FEWEST_ROUNDS}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to time; a step has the same number of `tokens` for every length and mixer."""

    known: ClassVar[Collection[str]] = tuple(CHANGES)
    lengths: tuple[int, ...] = (256, 1024, 4096)
    mixers: tuple[str, ...] = USUAL
    threads: int = min(2, cores())
    tokens: int = 4096
    rounds: int = 7

    def __post_init__(self) -> None:
        for name in self.mixers:
            if name not in self.known:
                raise unknown("mixer", name, self.known)
        check_given(mixers=self.mixers, lengths=self.lengths)
        if not 1 <= self.threads <= cores():
            raise ValueError(f"--threads is {self.threads}; accepted: 1 to {cores()}, the cores of this machine")
        check_rounds(self.rounds, FEWEST_ROUNDS)
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise ValueError(f"--lengths has {length}; accepted: divisors of the {self.tokens} tokens of a step")


def step_flops(config: Any, feature_dim: int | None, length: int, tokens: int) -> float:
    """Return the flops of forward and backward that every exact algorithm with these layers needs; no optimizer.

    A matrix of n weights takes 2n per token forward and 4n backward. Per layer (H (2D + V) + H V + 2 d_ff) E weights,
    and N E for the head. Attention per token, head and layer: linear 14 F V (4 forward, 10 backward), softmax
    7 (D + V) (T + 1) / 2 (7 products over the visible half, of which 2 forward), where `feature_dim` is None.
    """
    D, V = head_widths(config)
    per_layer = config.d_model * (config.n_heads * (2 * D + 2 * V) + 2 * config.hidden)
    weights = config.n_layers * per_layer + config.vocab_size * config.d_model
    return tokens * (6.0 * weights + config.n_layers * config.n_heads * attention_flops(config, feature_dim, length))


def attention_flops(config: Any, feature_dim: int | None, length: int) -> float:
    """Return the flops per token, head and layer, as in `step_flops`."""
    D, V = head_widths(config)
    return 14.0 * feature_dim * V if feature_dim else 7.0 * (D + V) * (length + 1) / 2


def head_widths(config: Any) -> tuple[int, int]:  # D, V
    V = config.head_dim or config.d_model // config.n_heads
    return config.key_dim or V, V


@dataclass(frozen=True)
class Subject:
    """One model ready to step."""

    step: Callable[[], float]
    flops: float | None  # None: not counted
    parameters: int


def subject(mixer: str, length: int, tokens: int, *, preset_name: str = PRESET, **changes: Any) -> Subject:
    """Return the preset with that mixer on random characters; `changes` to its configuration shrink it for tests."""
    import torch

    from ...models import build, preset

    torch.manual_seed(0)
    config = preset(preset_name, mixer=mixer, **{**CHANGES[mixer], **changes})
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
    flops = step_flops(config, width, length, tokens) if mixer in USUAL else None
    return Subject(step, flops, model.parameter_count())


def race(settings: TrainSettings, length: int, **changes: Any) -> dict[str, Any]:
    """Return one row: every mixer at one length."""
    subjects = {name: partial(subject, name, length, settings.tokens, **changes) for name in settings.mixers}
    return compare(settings, length, subjects, {"ratio": (BASELINE,), "ratio_elu": (YARDSTICK,)})


def compare(
    settings: TrainSettings,
    length: int,
    subjects: Mapping[str, Callable[[], Subject]],
    baselines: Mapping[str, tuple[str, ...]],
    warm: int = 0,
) -> dict[str, Any]:
    """Return the row of these subjects; each baseline names a ratio and lists mixers, of which the fastest counts."""
    import torch

    from ...native import memory
    from . import timing

    torch.set_num_threads(settings.threads)
    memory.keep_freed()
    entries: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {"sgemm": timing.sgemm()}
    for name, make in subjects.items():
        one = make()
        one.step()  # the optimizer creates its state
        loss, extra = timing.extra_memory(one.step)
        entries[name] = {"parameters": one.parameters, "flops": one.flops, "loss": loss, "extra_bytes": extra}
        calls[name] = one.step
    turns = timing.interleave(calls, settings.rounds, warm=warm)
    times = {name: timing.summary(seconds) for name, seconds in turns.items()}
    rate = timing.sgemm_rate(times["sgemm"]["min_s"])
    for name, entry in entries.items():
        entry |= times[name]
        entry["tokens_per_s"] = settings.tokens / entry["min_s"]
        entry["sgemm_percent"] = None if entry["flops"] is None else 100 * entry["flops"] / entry["min_s"] / rate
        entry |= _ratios(times, name, baselines)
    sizes = {"length": length, "batch": settings.tokens // length, "tokens": settings.tokens}
    sgemm = {**times["sgemm"], "gflops": rate / 1e9}
    return {**sizes, "threads": settings.threads, "sgemm": sgemm, "mixers": entries}


def _ratios(times: Mapping[str, Any], name: str, baselines: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Return the speedups over each baseline that ran, by minimum and by median."""
    ratios = {}
    for ratio, among in baselines.items():
        ran = [times[other] for other in among if other in times]
        for key, value in (("min_s", ratio), ("median_s", f"{ratio}_median")):
            if ran:
                ratios[value] = min(one[key] for one in ran) / times[name][key]
    return ratios
