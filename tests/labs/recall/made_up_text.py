"""Losses of language models that nobody trained, split into recall hits and the rest."""

from __future__ import annotations

from typing import Any

from linnet.labs.core.results import Row, make_row
from linnet.labs.recall.language_config import TextConfig
from linnet.labs.recall.language_verdict import PARTS

SETTLED, FALLING = [[25, 3.0], [50, 2.2], [75, 2.01], [100, 2.0]], [[25, 4.0], [50, 3.0], [75, 2.5], [100, 2.0]]
PAPER = {"steps": 20_000, "parameters": 150_000_000}


def row(
    mixer: str,
    seed: int,
    hits: float | None,
    rest: float,
    *,
    lr: float = 3e-3,
    chosen: float = -1.0,
    table: float | None = 3.0,
    steps: int = 600,
    parameters: int = 180_000,
    curve: list[list[float]] = SETTLED,
) -> Row:
    config = TextConfig(mixer=mixer, seed=seed, lr=lr, text="some", steps=steps).to_dict()
    parts: dict[str, Any] = {"hits": (hits, 100), "rest": (rest, 900), "all": (rest, 1000)}
    metrics: dict[str, Any] = {part: {"loss": loss, "bits": rest, "targets": n} for part, (loss, n) in parts.items()}
    metrics |= {"chosen_by": chosen, "most": 7, "state_bytes": 64, "curve": curve}
    metrics |= {} if table is None else {"table": {part: {"loss": table} for part in PARTS}}
    return make_row(config, metrics, 2.0, {"parameters": parameters})


def rows(
    based: float, rebased: float, *, rest: float = 0.1, seeds: int = 3, noise: float = 0.01, **about: Any
) -> list[Row]:
    """Softmax at 2 on hits and 4 on the rest; the others behind by so much, and a little more or less by the seed."""
    collected = []
    for seed in range(seeds):
        moved = noise * (seed - 1)
        collected += [row("softmax", seed, 2.0, 4.0, **about)]
        for mixer, gap in (("based", based), ("rebased", rebased)):
            collected += [row(mixer, seed, 2.0 + gap + moved, 4.0 + rest, **about)]
    return collected
