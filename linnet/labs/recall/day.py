"""The day runs of a recall claim: the papers' sizes in stages, each run until it has converged.

    stage      cells (a mixer at a size, without rate and seed) and a number of seeds: a complete test by itself
    search     a run for every rate on a seed that is never reported, at SEARCH_TOKENS tokens, ended at SOLVED or after
               SEARCH_STEPS
    report     `seeds` runs of the cell at the rate that its search prefers: the fewest steps, or else the best recall

A cell that has not been searched waits: its runs are listed, with a guess for their rate, and are not started. Rates of
longer sequences are those of SEARCH_TOKENS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core.claim import Setting, Unit
from ..core.results import Row, key
from .config import RecallConfig
from .run import rows_of
from .sizes import mixer_bytes
from .sweep import SEARCH_SEED, SOLVED, of_size

RATES = (3e-3, 1e-2, 3e-2)
GUESS = 1e-2
SEARCH_TOKENS = 128
STEPS = 12_500  # at most, as in the papers
SEARCH_STEPS = 1500  # at most, of a run that chooses a rate
WARMUP = 100  # steps
PATIENCE = 24  # evaluations, 50 steps apart: a flat start of 500 steps is usual
TYPICAL = 2000  # steps of a run, for estimates; the rows of a run correct them
DAY = RecallConfig(
    vocab_size=8192, seq_len=128, pairs=32, d_model=64, batch_size=32, steps=STEPS, warmup=WARMUP / STEPS,
    patience=PATIENCE,
)  # fmt: skip
WIDTH = 8  # of Based's keys, which set the bytes of every mixer
FLOPS = 1e11  # per second of one core, of the products of the head
PER_STEP, PER_TOKEN = 4e-3, 2e-6  # seconds of one core, the latter at width 64
SLOW = {"mamba": 5.0, "mamba2": 4.0, "rwkv7": 4.0, "gated_delta": 1.6, "softmax": 1.6, "delta": 1.4, "conv": 0.6}


@dataclass(frozen=True)
class Stage:
    """The cells of a stage and how many seeds each has."""

    cells: Sequence[RecallConfig]
    seeds: int = 5


def same_bytes(mixers: Sequence[str], tokens: int, width: int, **changes: Any) -> list[RecallConfig]:
    """Return these mixers at the bytes of Based with keys of width WIDTH; softmax and RWKV have one size each."""
    base = DAY.replace(seq_len=tokens, d_model=width, **changes)
    size = mixer_bytes("based", width, tokens, {}, key_dim=WIDTH)
    return [of_size(base, mixer, size) for mixer in mixers]


Stages = Callable[[], Sequence[Stage]]  # a cached function: it is the key of the units made from it


def day_units(stages: Stages, setting: Setting) -> list[Unit]:
    """Return the units of all stages, those of a search before the runs that wait for it, and each once."""
    units: dict[str, Unit] = {}
    for number, stage in enumerate(stages()):
        cells = range(len(stage.cells))
        rates = [rate_of(searches(stages, number, cell), setting) for cell in cells]
        wanted = [unit for cell in cells for unit in searches(stages, number, cell)]
        wanted += [report(stages, number, cell, rates[cell], seed) for seed in range(stage.seeds) for cell in cells]
        for unit in wanted:
            units.setdefault(key(unit.configs[0]), unit)
    return list(units.values())


@cache
def searches(stages: Stages, number: int, cell: int) -> tuple[Unit, ...]:
    """Return the runs that choose the rate of a cell; cells that differ in their length alone share them."""
    base = stages()[number].cells[cell]
    base = base.replace(seq_len=SEARCH_TOKENS, seed=SEARCH_SEED, stop_at=base.stop_at or SOLVED, probes=())
    base = base.replace(steps=SEARCH_STEPS, warmup=WARMUP / SEARCH_STEPS)
    return tuple(_unit(base.replace(lr=rate), number) for rate in RATES)


@cache
def report(stages: Stages, number: int, cell: int, rate: float | None, seed: int) -> Unit:
    """Return a run to report; without a rate it waits for its search."""
    config = stages()[number].cells[cell].replace(lr=rate or GUESS, seed=seed)
    return _unit(config, number, waits=rate is None)


def _unit(config: RecallConfig, stage: int, waits: bool = False) -> Unit:
    return Unit(rows_of, config, (config.to_dict(),), expected(config), stage=stage, waits=waits)


def rate_of(searched: Sequence[Unit], setting: Setting) -> float | None:
    """Return the rate that a search prefers; None before all of its rows exist."""
    rows = [setting.row(unit.configs[0]) for unit in searched]
    known = [row for row in rows if row is not None]
    return None if len(known) < len(rows) else preferred(known)


def preferred(rows: Sequence[Row]) -> float:
    """Return the rate that reached the target in the fewest steps, or where none did, that of the best recall."""
    there = [row for row in rows if row["metrics"]["ending"] == "stopped"]
    if there:
        return float(min(there, key=lambda row: row["metrics"]["curve"][-1][0])["config"]["lr"])
    return float(max(rows, key=lambda row: row["metrics"]["chosen_by"] or 0.0)["config"]["lr"])


def expected(config: RecallConfig) -> float:
    """Estimate the seconds of a run on one core: the head at the labelled positions, and the layers at all of them."""
    head = 6 * config.batch_size * config.pairs * config.vocab_size * config.d_model / FLOPS
    tokens = config.batch_size * config.seq_len * config.d_model / 64
    quadratic = 1 + config.seq_len / 512 if config.mixer == "softmax" else 1.0
    layers = PER_TOKEN * tokens * quadratic * SLOW.get(config.mixer, 1.0)
    return round(min(TYPICAL, config.steps) * (PER_STEP + head + layers), 1)
