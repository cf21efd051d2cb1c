"""One decoding step of the same model with each mixer: the share of it that reading its weights once takes.

The model is that of the preset, with its mixer replaced; competitors are checked against float64, then take turns with
reading as many bytes as there are weights (decode_race.py, decode_limits.py); the torch step is timed before them. The
state that a step also reads and writes is not in that limit: `state_bytes` says how large it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ...generate import open_engine
from . import decode_race, timing
from .decode_limits import ITEM_BYTES, bandwidth, readers, weights_of
from .decode_race import CHECKED, EAGER, WARM, Candidate, Prepared, admitted, expected, native_engine

TURNS = 20  # of one call each, in a round: on a busy machine some calls are undisturbed, but hardly a turn of many


def mixers(name: str, mixer: str, *, threads: int, batch: int, weights: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Return one row: the engines of a preset with this mixer on `threads` threads, `batch` streams."""
    torch.set_num_threads(threads)
    model = decode_race.random_model(name, mixer=mixer)
    tokens = torch.randint(model.levels, (batch, CHECKED))

    def stepped(kind: str) -> Prepared:
        engine = open_engine(model, backend="torch") if kind == EAGER else native_engine(model, kind)
        return partial(engine.step, rows=engine.add(rows=batch)), lambda: None

    given = [Candidate(f"linnet {kind}", partial(stepped, kind), weights=kind) for kind in weights]
    given.append(Candidate(EAGER, partial(stepped, EAGER)))
    entries, calls = admitted(given, tokens, expected(model, tokens))
    size = weights_of(model)
    for kind in weights:
        calls |= {f"read {kind} {how}": call for how, call in readers(size * ITEM_BYTES[kind]).items()}
    seconds = timing.interleave({EAGER: calls.pop(EAGER)}, rounds) if EAGER in calls else {}
    seconds |= timing.interleave(calls, TURNS * rounds, shortest=0.0, warm=3 * WARM)
    times = {one: timing.summary(spent) for one, spent in seconds.items()}
    reads = {kind: bandwidth(times, kind, size * ITEM_BYTES[kind]) for kind in weights}
    for one, entry in entries.items():
        if one not in times:
            continue
        entry |= times[one] | {"us_per_step": times[one]["min_s"] * 1e6}
        entry["faster_than_step"] = times[EAGER]["min_s"] / entry["min_s"] if EAGER in times else None
        kind = one.removeprefix("linnet ")
        if kind in reads:
            entry["read_percent"] = 100 * reads[kind]["min_s"] / entry["min_s"]
    state = sum(block.mixer.state_bytes(CHECKED) for block in model.backbone.layers)
    row = {"preset": name, "mixer": mixer, "threads": threads, "batch": batch, "weights": size, "state_bytes": state}
    return row | {"reads": reads, "competitors": entries}
