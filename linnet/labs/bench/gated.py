"""The gated family in `linnet bench ops --family gated`: its settings, its cases and their jobs; no torch here.

A case is one rule at one length: linnet's kernel, its torch form, a token by token loop in torch, the torch function of
transformers where it has one, and elu + 1 of the same sizes as the yardstick, all in turns in one process.
The scans have no heads: they run on heads x width channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import unknown
from .checks import check_given, check_rounds, check_threads, cores
from .jobs import FEWEST_ROUNDS, Job
from .sizes import BOTH, MODES, Case

SECTION = "gated"
RULES = ("retnet", "gla", "mamba2", "delta", "gated_delta", "kda", "rwkv7", "selective_scan", "wkv")
SCANS = ("selective_scan", "wkv")
LENGTHS = (2048,)
GATED_QUICK: dict[str, Any] = {"lengths": (512,), "rounds": FEWEST_ROUNDS, "limit": 10.0}


@dataclass(frozen=True)
class RuleCase(Case):
    """A case of one rule; streams x head_dim channels where the rule has no heads."""

    rule: str = RULES[0]

    @property
    def channels(self) -> int:
        return self.heads * self.head_dim

    def describe(self) -> dict[str, Any]:
        sizes = super().describe()
        return {"rule": self.rule} | {name: sizes[name] for name in sizes if not name.startswith("feature")}


@dataclass(frozen=True, kw_only=True)
class GatedSettings:
    only: tuple[str, ...] = RULES
    threads: tuple[int, ...] = (1, 2) if cores() > 1 else (1,)
    streams: tuple[int, ...] = (8,)
    head_dims: tuple[int, ...] = (64,)
    lengths: tuple[int, ...] = LENGTHS
    rounds: int = 9
    limit: float = 60.0  # seconds one competitor may take for all rounds of a case

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in RULES:
                raise unknown("rule", name, RULES)
        sizes = {"streams": self.streams, "head_dim": self.head_dims, "lengths": self.lengths}
        check_given(only=self.only, threads=self.threads, **sizes)
        check_rounds(self.rounds, FEWEST_ROUNDS)
        for option, values in sizes.items():
            for value in values:
                if value < 1:
                    raise ValueError(f"--{option.replace('_', '-')} has {value}; accepted: integers >= 1")
        check_threads(self.threads)
        if not self.limit > 0:
            raise ValueError(f"--limit is {self.limit}; accepted: seconds > 0")


def gated_settings(*, quick: bool = False, **options: Any) -> GatedSettings:
    """Return the default or quick settings with the options that are not None."""
    chosen = {name: value for name, value in options.items() if value is not None}
    return GatedSettings(**(GATED_QUICK | chosen if quick else chosen))


def gated_plan(settings: GatedSettings) -> list[Job]:
    """Return a job for each rule, length, width and number of streams and threads."""

    def run(case: RuleCase) -> list[dict[str, Any]]:
        from .gated_race import race

        return [race(case, mode, settings.rounds, settings.limit) for mode in MODES]

    return [
        Job(SECTION, _title(case), _guess(case, settings), partial(run, case))
        for width in settings.head_dims
        for streams in settings.streams
        for length in settings.lengths
        for count in settings.threads
        for case in (RuleCase(count, streams, length, width, width, rule=rule) for rule in settings.only)
    ]


def _title(case: RuleCase) -> str:
    return f"{case.rule}, {case.streams} x {case.length}, width {case.head_dim}, threads {case.threads}"


def _guess(case: RuleCase, settings: GatedSettings) -> float:
    """Estimate the seconds of both modes: mostly the loops over tokens, and the reference."""
    loops = 8e-4 * case.length * (settings.rounds + 2) * 2
    return 1.0 + min(loops, 2 * settings.limit) + 4e-3 * case.length + 2e-6 * case.floor(BOTH) / 1e3
