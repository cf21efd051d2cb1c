"""Progress: the state of a run as a value stored in every checkpoint; Clock: its speed.

A step replaces the value, nothing mutates it. Together with the weights, the optimizer's tensors and TrainConfig it
determines the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from ..schema import Maybe, Number, Record, Table, Text, Whole
from .optim import Plateau

_LOSS = Maybe(Number(nan=True))
CONTENT = Record(  # as stored in a checkpoint
    {
        "step": Whole(),
        "plateau": Record({"best": _LOSS, "bad": Whole(), "cuts": Whole(0, 1_000_000)}),
    },
    {
        "units": Whole(),
        "seconds": Number(0),
        "loss": _LOSS,
        "metrics": Table(_LOSS),
        "best_step": Maybe(Whole()),
        "best_loss": _LOSS,
        "autocast": Text("none", "bf16"),
    },
)


@dataclass(frozen=True)
class Progress:
    """The state of a run after `step` optimizer steps."""

    step: int = 0
    units: int = 0  # tokens, pixels, ... trained on
    seconds: float = 0.0  # of training, over all resumptions
    loss: float | None = None  # of the last step
    metrics: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    best_step: int | None = None  # the checkpoint with the lowest held-out loss
    best_loss: float | None = None
    plateau: Plateau = field(default_factory=Plateau)
    autocast: str = "none"  # the precision that TrainConfig.autocast resolved to

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        return cls(**{**values, "plateau": Plateau(**values["plateau"])})


class Clock:
    """Measure speed and time left. The speed counts steps only; the time left includes evaluations and saves."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self.first, self.steps = progress, steps
        self.began = self.lap = perf_counter()
        self.units = progress.units

    @property
    def seconds(self) -> float:
        """Training time in seconds, over all resumptions."""
        return self.first.seconds + perf_counter() - self.began

    def start_step(self) -> None:
        """Start timing a step; the time since the last one went to evaluations and saves."""
        self.lap = perf_counter()

    def end_step(self, progress: Progress) -> dict[str, float]:
        """Return the seconds, the units per second of this step, and the seconds left."""
        now = perf_counter()
        speed = (progress.units - self.units) / max(now - self.lap, 1e-9)
        self.units = progress.units
        each = (now - self.began) / max(1, progress.step - self.first.step)
        left = each * (self.steps - progress.step)
        return {"seconds": self.seconds, "units_per_second": speed, "seconds_left": left}
