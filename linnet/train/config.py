"""TrainConfig: everything that decides how a run goes, as plain values, checked when made and kept as JSON.

It is stored in every checkpoint. A resumed run may change only what leaves the numbers of its steps alone (FREE);
anything else is refused by name, because the second half would not be the same experiment as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Literal, get_args

from ..errors import unknown

Schedule = Literal["constant", "cosine", "linear", "plateau"]
Optimizer = Literal["adamw", "radam"]
Autocast = Literal["auto", "none", "bf16"]

# What a resume may change: how long, how often something is written, and how memory is spent. `eval_every` and
# `eval_rows` are not free under the plateau schedule, where an evaluation moves the learning rate.
FREE = frozenset(
    "steps accumulate eval_every eval_rows save_every keep log_every checkpoint_activations tensorboard".split()
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train: steps, batches, optimizer, learning rate, and what is written when."""

    steps: int = 1000
    """Optimizer steps in all."""

    batch_size: int = 16
    """Examples per step, over all processes and micro-batches."""

    accumulate: int = 1
    """Micro-batches per step: less memory, the same step."""

    lr: float = 1e-3
    """Highest learning rate."""

    min_lr: float = 0.0
    """Learning rate that cosine and linear end at, and that plateau never goes below."""

    warmup: int = 0
    """Steps over which the learning rate rises linearly from nothing."""

    schedule: Schedule = "cosine"
    """What the learning rate does after the warm-up: constant, cosine, linear or plateau."""

    plateau_patience: int = 3
    """Evaluations without a better loss before plateau cuts the learning rate."""

    plateau_factor: float = 0.5
    """What plateau multiplies the learning rate by."""

    optimizer: Optimizer = "adamw"
    """adamw or radam, both with decoupled weight decay."""

    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of the running means of the gradient and of its square."""

    eps: float = 1e-8
    """Added to the root of the mean square."""

    weight_decay: float = 0.01
    """Decoupled weight decay of matrices; norms, biases and other vectors are left alone."""

    decay_all: bool = False
    """Weight decay on every parameter, norms and biases too."""

    clip: float = 1.0
    """Largest norm of the whole gradient; 0 does not clip."""

    clip_each: float = 0.0
    """Largest norm of each tensor's gradient by itself, in place of `clip`; 0 is off."""

    seed: int = 0
    """Of the order of the examples and of dropout."""

    eval_every: int = 0
    """Steps between evaluations on the held-out rows; 0 evaluates only after the last step."""

    eval_rows: int = 0
    """How many held-out rows to evaluate, from the first; 0 takes all of them."""

    save_every: int = 0
    """Steps between checkpoints; 0 saves only after the last step or when told to stop."""

    keep: int = 3
    """How many checkpoints to keep, beside the best one."""

    log_every: int = 1
    """Steps between lines of the log."""

    autocast: Autocast = "auto"
    """Matrix products in bfloat16: auto measures whether it pays on this machine, none never, bf16 always."""

    checkpoint_activations: bool = False
    """Compute each block again in the backward pass instead of keeping its activations."""

    tensorboard: bool = False
    """Also write what is logged for TensorBoard (needs the extra `train`)."""

    def __post_init__(self) -> None:
        if isinstance(self.betas, list):  # as JSON has it
            object.__setattr__(self, "betas", tuple(self.betas))
        for name in ("steps", "batch_size", "accumulate", "plateau_patience", "keep", "log_every"):
            self._whole(name, 1)
        for name in ("warmup", "seed", "eval_every", "eval_rows", "save_every"):
            self._whole(name, 0)
        for name in ("min_lr", "eps", "weight_decay", "clip", "clip_each"):
            self._number(name, lambda x: x >= 0, "a number >= 0")
        self._number("lr", lambda x: x > 0, "a number above 0")
        self._number("plateau_factor", lambda x: 0 < x < 1, "a number between 0 and 1")
        for name in ("decay_all", "checkpoint_activations", "tensorboard"):
            if not isinstance(getattr(self, name), bool):
                raise _refused(name, getattr(self, name), "True or False")
        for name, kind in (("schedule", Schedule), ("optimizer", Optimizer), ("autocast", Autocast)):
            if getattr(self, name) not in get_args(kind):
                raise unknown(name, getattr(self, name), get_args(kind))
        self._pairs()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` gives the same configuration back."""
        return asdict(self) | {"betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The configuration in a JSON object; a field it does not name has its default."""
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise unknown("field of TrainConfig", name, names)
        return cls(**values)

    def difference(self, other: TrainConfig) -> str | None:
        """The first field that differs and that a resumed run may not change, or None."""
        fixed = {"eval_every", "eval_rows"} if self.schedule == "plateau" else set()
        names = [field.name for field in fields(self) if field.name not in FREE - fixed]
        return next((name for name in names if getattr(self, name) != getattr(other, name)), None)

    def _pairs(self) -> None:
        """Fields that must fit each other."""
        two = isinstance(self.betas, tuple) and len(self.betas) == 2
        if not (two and all(_is_number(b) and 0 <= b < 1 for b in self.betas)):
            raise _refused("betas", self.betas, "two numbers from 0 up to, but not, 1")
        if self.batch_size % self.accumulate:
            raise _refused("accumulate", self.accumulate, f"a divisor of batch_size ({self.batch_size})")
        if self.min_lr > self.lr:
            raise _refused("min_lr", self.min_lr, f"at most lr ({self.lr})")
        if self.warmup > self.steps:
            raise _refused("warmup", self.warmup, f"at most steps ({self.steps})")
        if self.schedule == "plateau" and not self.eval_every:
            raise _refused("eval_every", 0, "1 or more with schedule 'plateau', which looks at the held-out loss")

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _refused(name, value, f"a whole number >= {least}")

    def _number(self, name: str, good: Callable[[float], bool], accepted: str) -> None:
        value = getattr(self, name)
        if not (_is_number(value) and isfinite(value) and good(value)):
            raise _refused(name, value, accepted)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refused(name: str, value: object, accepted: str) -> ValueError:
    return ValueError(f"{name} is {value!r}; accepted: {accepted}")
