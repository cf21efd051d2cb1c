"""`linnet eval --weights`: measure the same data again token by token, as `linnet generate` runs, and compare.

    difference = bits of an engine with weights of this precision  -  bits of the parallel form in float32

A progress bar with the time left appears after two seconds.
"""

from __future__ import annotations

from math import log
from typing import Any

from ..generate.engine import Engine, TorchEngine
from ..generate.score import OnProgress, score
from .common import Bar
from .train_show import format_metrics

BITS = {"text": "bits", "image": "bits_per_dim"}  # kind of data -> the metric that is compared
UNITS = {"text": "bits/token", "image": "bits/dim"}


def measure_stepwise(
    kind: str, engine: Engine, source: Any, rows: int, batch_size: int, parallel: dict[str, Any]
) -> dict[str, Any]:
    """Return the engine's metrics on the first rows, named as in `parallel`, and the difference in bits."""
    nats, count = 0.0, 0
    with Bar(f"stepping through {rows:,} examples") as bar:
        for first in range(0, rows, batch_size):
            batch = source.batch(range(first, min(first + batch_size, rows)))
            on_progress = _offset(bar, first, len(batch["tokens"]), rows)
            more, n = score(engine, batch["tokens"], batch.get("targets"), on_progress=on_progress)
            nats, count = nats + more, count + n
    bits = nats / count / log(2)
    metrics = {"backend": "torch" if isinstance(engine, TorchEngine) else "native", "loss": nats / count}
    metrics[BITS[kind]] = bits
    if "bits_per_byte" in parallel:
        metrics["bits_per_byte"] = bits * parallel["bits_per_byte"] / parallel["bits"]
    return metrics | {"difference": bits - parallel[BITS[kind]]}


def format_stepwise(kind: str, metrics: dict[str, Any]) -> str:
    """Return one line: the stepwise metrics, the engine, and the difference from the parallel form."""
    stepped, parallel = metrics["stepped"], metrics[BITS[kind]]
    return (
        f"{'stepped':>12}: {format_metrics(stepped)} with {stepped['weights']} weights ({stepped['backend']}): "
        f"{stepped['difference']:+.4f} {UNITS[kind]}, {100 * stepped['difference'] / parallel:+.2f} %"
    )


def _offset(bar: OnProgress, first: int, size: int, rows: int) -> OnProgress:
    return lambda step, steps: bar(first * steps + size * step, rows * steps)
