"""`linnet eval --weights`: the same data once more, stepped through as `linnet generate` does, and the difference.

    difference = bits of an engine whose weights are stored so  -  bits of the parallel form in float32

Shown once two seconds have passed: how far it is, and how long it will take.
"""

from __future__ import annotations

from math import log
from typing import Any

from ..generate.engine import Engine, TorchEngine
from ..generate.score import OnProgress, score
from .generate_image import Bar
from .train_show import shown

BITS = {"text": "bits", "image": "bits_per_dim"}  # the kinds of data that can be stepped, and what is compared
UNITS = {"text": "bits/token", "image": "bits/dim"}


def stepped(
    kind: str, engine: Engine, source: Any, rows: int, batch_size: int, parallel: dict[str, Any]
) -> dict[str, Any]:
    """The metrics of the engine on the first rows, by the names `parallel` has, and what they differ by in bits."""
    nats, count = 0.0, 0
    with Bar(f"stepping through {rows:,} examples") as bar:
        for first in range(0, rows, batch_size):
            batch = source.batch(range(first, min(first + batch_size, rows)))
            told = _told(bar, first, len(batch["tokens"]), rows)
            more, n = score(engine, batch["tokens"], batch.get("targets"), on_progress=told)
            nats, count = nats + more, count + n
    bits = nats / count / log(2)
    found = {"backend": "torch" if isinstance(engine, TorchEngine) else "native", "loss": nats / count}
    found[BITS[kind]] = bits
    if "bits_per_byte" in parallel:
        found["bits_per_byte"] = bits * parallel["bits_per_byte"] / parallel["bits"]
    return found | {"difference": bits - parallel[BITS[kind]]}


def line(kind: str, found: dict[str, Any]) -> str:
    """One line: what was measured, with what, and how far it is from the parallel form."""
    here, whole = found["stepped"], found[BITS[kind]]
    return (
        f"{'stepped':>12}: {shown(here)} with {here['weights']} weights ({here['backend']}): "
        f"{here['difference']:+.4f} {UNITS[kind]}, {100 * here['difference'] / whole:+.2f} %"
    )


def _told(bar: OnProgress, first: int, size: int, rows: int) -> OnProgress:
    return lambda step, steps: bar(first * steps + size * step, rows * steps)
