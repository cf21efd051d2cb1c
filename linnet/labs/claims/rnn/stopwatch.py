"""End a training run after a number of seconds, with a score on held-out images at every mark of the clock.

marks at seconds * 1/5 ... 5/5       the clock stands still during evaluations, and starts after the first update
"""

from __future__ import annotations

from time import perf_counter

from ....data import ImageSource
from ....models import Model
from ....train import Event, evaluate
from ...core.claim import rounded

MARKS = 5  # points of a curve


class TimeUp(Exception):
    """Ends a run whose seconds are over."""


class Stopwatch:
    """Counts from the first update, pauses during evaluations, and raises TimeUp."""

    def __init__(self, model: Model, held_out: ImageSource, seconds: float, batch: int, rows: int) -> None:
        self.model, self.held_out, self.seconds = model, held_out, seconds
        self.batch, self.rows = batch, rows
        self.began, self.updates = 0.0, 0
        self.curve: list[list[float]] = []  # seconds, updates, bits

    def __call__(self, event: Event) -> None:
        if event.kind != "step":
            return
        if event.step == 1:
            self.began = perf_counter()
            return
        self.updates = event.step - 1
        spent = perf_counter() - self.began
        if spent >= self.seconds * (len(self.curve) + 1) / MARKS:
            self._mark(spent)

    def _mark(self, spent: float) -> None:
        paused = perf_counter()
        bits = evaluate(self.model, self.held_out, batch_size=self.batch, rows=self.rows)["bits_per_dim"]
        self.curve.append([rounded(spent), self.updates, rounded(bits)])
        if spent >= self.seconds:
            raise TimeUp
        self.began += perf_counter() - paused
