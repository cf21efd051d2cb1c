"""The sizes of the recall papers, and those of recall rows: which regime rows are in, and their scope in words.

ZOOLOGY   Arora et al. 2023, arXiv:2312.04927, and 2024, arXiv:2402.18668
TABLE_1   Aksenov et al. 2024, arXiv:2402.10644; LENGTHS compares its two lengths, SECTION_5 is where queries look
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.licence import Regime, regime
from ..core.results import Row
from .config import RecallConfig
from .run import CONVERGED


class Bench(NamedTuple):
    """Sizes of a paper: in words, and least and most of each axis of AXES that its statement depends on."""

    words: str
    axes: Mapping[str, tuple[float, float]]


AXES: dict[str, Callable[[list[RecallConfig]], list[float]]] = {
    "tokens": lambda runs: [one.seq_len for one in runs],
    "shortest_sequence": lambda runs: [min(one.seq_len for one in runs)],
    "longest_sequence": lambda runs: [max(one.seq_len for one in runs)],
    "width": lambda runs: [one.d_model for one in runs],
    "pairs": lambda runs: [one.pairs for one in runs],
    "heads": lambda runs: [one.n_heads for one in runs],
    "symbols": lambda runs: [one.vocab_size for one in runs],
    "steps": lambda runs: [one.steps for one in runs],
}
ZOOLOGY = Bench(
    "64 to 512 tokens, width 64 to 512, 4 to 64 pairs, 8,192 symbols, 12,500 steps",
    {"tokens": (64, 512), "width": (64, 512), "pairs": (4, 64), "symbols": (8192, 8192), "steps": (12_500, 12_500)},
)
TABLE_1 = Bench(
    "256 and 2,048 tokens, width 16 to 48, 32 pairs, 8,192 symbols, 12,544 steps",
    {"tokens": (256, 2048), "width": (16, 48), "pairs": (32, 32), "symbols": (8192, 8192), "steps": (12_544, 12_544)},
)
LENGTHS = Bench(
    TABLE_1.words,
    {"shortest_sequence": (256, 256), "longest_sequence": (2048, 2048)}
    | {name: size for name, size in TABLE_1.axes.items() if name != "tokens"},
)
SECTION_5 = Bench(
    "128 tokens, width 64, 32 pairs, 12 heads, 8,192 symbols",
    {"tokens": (128, 128), "width": (64, 64), "pairs": (32, 32), "heads": (12, 12), "symbols": (8192, 8192)},
)


def regime_of(rows: Sequence[Row], bench: Bench) -> Regime:
    """Return the regime of rows; of several sizes the one that is furthest from the paper's decides.

    The number of steps counts for runs that did not end by their test of convergence (run.py).
    """
    runs = [RecallConfig.from_dict(row["config"]) for row in rows]
    ended = [one for one, row in zip(runs, rows, strict=True) if not has_converged(row)]
    axes: dict[str, Any] = {}
    for name, (least, most) in bench.axes.items():
        counted = ended if name == "steps" else runs
        if counted:
            ours = max(AXES[name](counted), key=lambda size: max(size / most, least / size))
            axes[name] = (ours, least, most)
    return regime(bench.words, sizes(rows), **axes)


def has_converged(row: Row) -> bool:
    """Return whether a run ended by its test of convergence: more steps, as in a paper, would not change it."""
    return row["metrics"].get("ending") in CONVERGED


def steps_of(row: Row) -> int:
    """Return how many steps a run took."""
    curve = row["metrics"].get("curve") or []
    return int(curve[-1][0]) if curve and has_converged(row) else RecallConfig.from_dict(row["config"]).steps


def sizes(rows: Sequence[Row]) -> str:
    """Return the sizes of rows in words: "d = 64, 64 tokens, 16 pairs, 256 symbols, 600 steps"."""
    runs = [RecallConfig.from_dict(row["config"]) for row in rows]
    spans = [f"{spanned(AXES[name](runs))} {name}" for name in ("tokens", "pairs", "symbols")]
    spans += [f"{spanned([steps_of(row) for row in rows])} steps"]
    converged = ", until converged" if all(map(has_converged, rows)) else ""
    return f"d = {spanned(AXES['width'](runs))}, {', '.join(spans)}{converged}"


def scope_of(rows: Sequence[Row], seeds: int) -> str:
    """Return the scope of a verdict: sizes and seeds."""
    runs = [RecallConfig.from_dict(row["config"]) for row in rows]
    parts = [f"d = {spanned(AXES['width'](runs))}", f"{spanned(AXES['tokens'](runs))} tokens"]
    return ", ".join([*parts, f"{spanned(AXES['pairs'](runs))} pairs", f"{seeds} seeds"])


def spanned(values: Sequence[float]) -> str:
    """Return one value, "16 and 48", or "16 to 512" of three or more."""
    ordered = sorted(set(values))
    if len(ordered) < 3:
        return " and ".join(f"{value:,g}" for value in ordered)
    return f"{ordered[0]:,g} to {ordered[-1]:,g}"
