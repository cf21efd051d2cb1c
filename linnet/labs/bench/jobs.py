"""The jobs of `linnet bench ops`: its settings, and the jobs they become, each with its expected seconds.

    ops         the elu+1 op against its competitors, by length, streams, width, threads and mode
    quadratic   Based and ReBased (head width 16, value width 64): fused against features materialised in torch
    threads, block, long, build     see whole.py

Default lengths depend on the size: up to 65,536 tokens for 8 streams, shorter where a case would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import unknown
from .checks import check_given, check_rounds, check_threads, cores
from .sizes import BOTH, MODES, Case

SECTIONS = ("ops", "quadratic", "threads", "block", "long", "build")
DEFAULT_LENGTHS = (16, 32, 64, 128, 512, 2048, 8192, 32768, 65536)
MANY_STREAMS = (128, 2048, 8192)  # for 32 streams
WIDE = (512, 2048, 8192)  # for head width 128
MAPS, MAP_LENGTHS = ("taylor", "rebased", "square"), (2048, 8192)  # quadratic: streams 8, head width 16, values 64
BLOCK_LENGTHS = (512, 2048, 8192)
FEWEST_ROUNDS = 7
QUICK: dict[str, Any] = {
    "only": ("ops", "build"),
    "streams": (8,),
    "head_dims": (64,),
    "lengths": (64, 128, 512, 2048),
    "rounds": FEWEST_ROUNDS,
    "competitors": ("linnet", "linnet torch", "sdpa", "torch batched 64", "torch loop 128", "per-token"),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    only: tuple[str, ...] = SECTIONS
    threads: tuple[int, ...] = (1, 2) if cores() > 1 else (1,)
    streams: tuple[int, ...] = (8, 32)
    head_dims: tuple[int, ...] = (64, 128)
    lengths: tuple[int, ...] | None = None
    rounds: int = 9
    limit: float = 120.0  # seconds one competitor may take for all rounds of a case
    competitors: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in SECTIONS:
                raise unknown("section", name, SECTIONS)
        check_given(only=self.only, threads=self.threads, streams=self.streams, head_dim=self.head_dims)
        check_given(lengths=self.lengths if self.lengths is not None else DEFAULT_LENGTHS)
        check_rounds(self.rounds, FEWEST_ROUNDS)
        for option in ("threads", "streams", "head_dims", "lengths"):
            for value in getattr(self, option) or ():
                if value < 1:
                    raise ValueError(f"{_flag(option)} has {value}; accepted: integers >= 1")
        check_threads(self.threads)
        if not self.limit > 0:
            raise ValueError(f"--limit is {self.limit}; accepted: seconds > 0")


def _flag(option: str) -> str:
    return "--" + option.replace("_dims", "-dim")


def settings(*, quick: bool = False, **options: Any) -> Settings:
    """Return the default or quick settings with the options that are not None."""
    chosen = {name: value for name, value in options.items() if value is not None}
    return Settings(**(QUICK | chosen if quick else chosen))


@dataclass(frozen=True)
class Job:
    section: str
    title: str
    seconds: float  # expected, for the progress bar
    run: Callable[[], list[dict[str, Any]]]


def plan(settings: Settings) -> list[Job]:
    makers = {
        "ops": _ops,
        "quadratic": _quadratic,
        "threads": _threads,
        "block": _block,
        "long": _long,
        "build": _build,
    }
    return [job for section in SECTIONS if section in settings.only for job in makers[section](settings)]


def lengths_for(settings: Settings, streams: int, head_dim: int) -> tuple[int, ...]:
    if settings.lengths is not None:
        return settings.lengths
    if head_dim > 64:
        return WIDE if streams <= 8 else ()
    return DEFAULT_LENGTHS if streams <= 8 else MANY_STREAMS


def _ops(settings: Settings) -> list[Job]:
    return [
        Job(
            "ops",
            f"{streams} x {length}, width {width}, threads {count}",
            _guess(settings, streams * length, length, width * width, count),
            partial(_run_ops, settings, (count, streams, length, width, width)),
        )
        for width in settings.head_dims
        for streams in settings.streams
        for length in lengths_for(settings, streams, width)
        for count in settings.threads
    ]


def _run_ops(settings: Settings, sizes: tuple[int, int, int, int, int]) -> list[dict[str, Any]]:
    from .competitors import for_elu
    from .race import race

    chosen = [one for one in for_elu() if settings.competitors is None or one.name in settings.competitors]
    return [race(Case(*sizes), mode, chosen, settings.rounds, settings.limit) for mode in MODES]


def _quadratic(settings: Settings) -> list[Job]:
    return [
        Job(
            "quadratic",
            f"{name}, 8 x {length}, threads {count}",
            _guess(settings, 8 * length, 0, 153 * 64, count),
            partial(_run_quadratic, settings, name, (count, 8, length, 16, 64)),
        )
        for length in settings.lengths or MAP_LENGTHS
        for count in settings.threads
        for name in MAPS
    ]


def _run_quadratic(settings: Settings, name: str, sizes: tuple[int, int, int, int, int]) -> list[dict[str, Any]]:
    from .competitors import for_quadratic
    from .race import race

    case = Case(*sizes, feature_map=name)
    return [race(case, mode, for_quadratic(case), settings.rounds, settings.limit) for mode in MODES]


def _threads(settings: Settings) -> list[Job]:
    counts = tuple(sorted({1, *settings.threads}))
    sizes = [(streams, length) for streams in (8, 1) for length in (2048, 8192)]

    def job(streams: int, length: int, mode: str) -> Job:
        def run() -> list[dict[str, Any]]:
            from .whole import threads

            return [threads(streams, length, mode, counts, settings.rounds)]

        return Job("threads", f"{streams} x {length}, {mode}", 1 + 3e-6 * streams * length * settings.rounds, run)

    return [job(*size, mode) for size in sizes for mode in MODES] if len(counts) > 1 else []


def _block(settings: Settings) -> list[Job]:
    def job(length: int, mode: str, count: int) -> Job:
        def run() -> list[dict[str, Any]]:
            from .whole import block

            return [block(length, mode, count, settings.rounds)]

        seconds = 25e6 * length / 1e11 / count * (1 + length / 8192) * (3 if mode == BOTH else 1)
        return Job("block", f"{length} tokens, {mode}, threads {count}", 1 + seconds * settings.rounds, run)

    return [
        job(n, mode, count) for n in settings.lengths or BLOCK_LENGTHS for count in settings.threads for mode in MODES
    ]


def _long(settings: Settings) -> list[Job]:
    def job(count: int) -> Job:
        def run() -> list[dict[str, Any]]:
            from .whole import long

            return [long(count, settings.rounds)]

        return Job("long", f"1,000,000 tokens, threads {count}", 12 + 0.7 * settings.rounds / count, run)

    return [job(count) for count in settings.threads]


def _build(settings: Settings) -> list[Job]:
    def run() -> list[dict[str, Any]]:
        from .whole import built

        return [built()]

    return [Job("build", "the native library from source", 10.0, run)]


def _guess(settings: Settings, tokens: int, length: int, state: int, count: int) -> float:
    """Estimate the seconds of both modes: linear competitors, about 30 kernels at 60 GF, and softmax in its limit."""
    linear = 30 * 18 * state * tokens / (60e9 * count) * settings.rounds
    softmax = [factor * 128.0 * tokens * length / (90e9 * count) * settings.rounds for factor in (1.0, 3.5)]
    return 0.5 + 0.06 * settings.rounds + linear + sum(x for x in softmax if x < settings.limit)
