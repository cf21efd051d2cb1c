"""The jobs of `linnet bench decode`: its settings, and the jobs they become, each with its expected seconds.

    steps    one decoding step, by threads and batch (decode_race.py)
    mixers   the same with each mixer, next to reading its weights (decode_mixers.py)
    images   seconds per image, sampling included (decode_images.py)
    curve    state and time per token by position, up to `context` tokens; the figure (decode_long.py)
    soak     one stream of very many tokens: is it flat? (decode_long.py)

torch is imported only when a job runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ...errors import unknown
from .checks import check_given, check_rounds, check_threads, cores

SECTIONS = ("steps", "mixers", "images", "curve", "soak")
ALL = "all"
# What the native decoder runs, without what takes longer at a later position.
MIXERS = (
    "elu", "rebased", "conv", "gated_conv", "retnet", "gla", "mamba2", "delta", "gated_delta", "kda", "mamba", "rwkv4",
    "rwkv7",
)  # fmt: skip
SIZES = {"mnist": (8, 784), "cifar10": (16, 3072)}  # layers, tokens of an image
WEIGHTS = ("float32", "bfloat16", "int8")
FEWEST_ROUNDS = 3
IMAGE_ROUNDS = 3  # an image already takes hundreds of steps
SHORTEST = 100  # tokens: where curve and soak start
QUICK: dict[str, Any] = {"batches": (1,), "rounds": FEWEST_ROUNDS, "threads": (min(2, cores()),)}
Report: TypeAlias = Callable[[float], None]  # fraction of a job that is done, 0 to 1


@dataclass(frozen=True, kw_only=True)
class DecodeSettings:
    """What to measure, and how often."""

    preset: str = "mnist"
    batches: tuple[int, ...] = (1, 8, 64)
    threads: tuple[int, ...] = (1, 2) if cores() > 1 else (1,)
    context: int = 3072
    weights: tuple[str, ...] = WEIGHTS
    rounds: int = 9
    recompute: bool = False
    steps: bool = True
    mixers: tuple[str, ...] = ()
    images: bool = False
    curve: bool = False
    soak: int | None = None

    def __post_init__(self) -> None:
        if self.preset not in SIZES:
            raise unknown("preset", self.preset, SIZES)
        for kind in self.weights:
            if kind not in WEIGHTS:
                raise unknown("kind of weights", kind, WEIGHTS)
        for name in self.mixers:
            if name not in MIXERS:
                raise unknown("mixer", name, (ALL, *MIXERS))
        check_given(batch=self.batches, threads=self.threads, weights=self.weights)
        if min(self.batches) < 1:
            raise ValueError(f"--batch has {min(self.batches)}; accepted: integers >= 1")
        check_threads(self.threads)
        check_rounds(self.rounds, FEWEST_ROUNDS)
        self._check_lengths()

    def _check_lengths(self) -> None:
        if self.context < 1:
            raise ValueError(
                f"--context is {self.context}; accepted: 1 or more, the tokens that softmax attention sees"
            )
        if self.curve and self.context <= SHORTEST:
            raise ValueError(f"--plot needs a --context over {SHORTEST} tokens, where it starts, not {self.context}")
        if self.soak is not None and self.soak <= SHORTEST:
            raise ValueError(f"--soak is {self.soak}; accepted: more than {SHORTEST} tokens, where it starts")
        if not sections(self):
            raise ValueError(
                "--no-steps leaves nothing to measure; add --mixers all, --images, --plot FILE or --soak TOKENS"
            )


@dataclass(frozen=True)
class DecodeJob:
    section: str
    title: str
    seconds: float  # expected, for the progress bar
    run: Callable[[Report], dict[str, Any]]


def plan(settings: DecodeSettings) -> list[DecodeJob]:
    makers = {"steps": _steps, "mixers": _mixers, "images": _images, "curve": _curve, "soak": _soak}
    return [job for section in sections(settings) for job in makers[section](settings)]


def sections(settings: DecodeSettings) -> list[str]:
    """Return the requested sections."""
    return [section for section in SECTIONS if getattr(settings, section)]


def _cases(settings: DecodeSettings) -> list[tuple[int, int]]:
    return [(count, batch) for count in settings.threads for batch in settings.batches]


def _steps(settings: DecodeSettings) -> list[DecodeJob]:
    layers, _ = SIZES[settings.preset]

    def run(count: int, batch: int, report: Report) -> dict[str, Any]:
        from .decode_race import race

        sizes: dict[str, Any] = {"threads": count, "batch": batch, "context": settings.context}
        how: dict[str, Any] = {"weights": settings.weights, "rounds": settings.rounds, "recompute": settings.recompute}
        return race(settings.preset, **sizes, **how)

    def guess(batch: int) -> float:
        tokens = batch * settings.context * (settings.context if settings.recompute else 1)
        return 3 + settings.rounds * (0.1 + 2e-7 * layers * tokens + 1e-4 * layers * batch)

    return [
        DecodeJob("steps", f"threads {count}, batch {batch}", guess(batch), partial(run, count, batch))
        for count, batch in _cases(settings)
    ]


def _mixers(settings: DecodeSettings) -> list[DecodeJob]:
    def run(mixer: str, count: int, batch: int, report: Report) -> dict[str, Any]:
        from .decode_mixers import mixers

        how: dict[str, Any] = {"weights": settings.weights, "rounds": settings.rounds}
        return mixers(settings.preset, mixer, threads=count, batch=batch, **how)

    return [
        DecodeJob("mixers", f"{mixer}, threads {count}, batch {batch}", 3 + 0.4 * settings.rounds, run_one)
        for count, batch in _cases(settings)
        for mixer in settings.mixers
        for run_one in (partial(run, mixer, count, batch),)
    ]


def _images(settings: DecodeSettings) -> list[DecodeJob]:
    layers, tokens = SIZES[settings.preset]

    def run(count: int, batch: int, report: Report) -> dict[str, Any]:
        from .decode_images import images
        from .decode_race import random_model

        how: dict[str, Any] = {"weights": settings.weights, "rounds": min(IMAGE_ROUNDS, settings.rounds)}
        model = random_model(settings.preset)
        return images(settings.preset, model, threads=count, batch=batch, **how)

    return [
        DecodeJob("images", f"threads {count}, batch {batch}", 1e-3 * tokens * layers, partial(run, count, batch))
        for count, batch in _cases(settings)
    ]


def _curve(settings: DecodeSettings) -> list[DecodeJob]:
    layers, _ = SIZES[settings.preset]

    def run(report: Report) -> dict[str, Any]:
        from .decode_long import curve
        from .decode_race import random_model

        model = random_model(settings.preset)
        how: dict[str, Any] = {
            "threads": max(settings.threads),
            "weights": settings.weights[0],
            "rounds": settings.rounds,
        }
        return curve(model, context=settings.context, **how, report=report)

    return [DecodeJob("curve", f"to {settings.context:,} tokens", 1e-4 * layers * settings.context, run)]


def _soak(settings: DecodeSettings) -> list[DecodeJob]:
    layers, _ = SIZES[settings.preset]
    tokens = settings.soak
    assert tokens is not None

    def run(report: Report) -> dict[str, Any]:
        from .decode_long import soak
        from .decode_race import random_model

        model = random_model(settings.preset)
        how: dict[str, Any] = {"threads": max(settings.threads), "weights": settings.weights[0]}
        return soak(model, tokens=tokens, **how, report=report)

    return [DecodeJob("soak", f"{tokens:,} tokens", 1e-4 * layers * tokens, run)]
