"""TrainConfig: the hyperparameters of a run as plain values, validated on construction and stored as JSON.

It is stored in every checkpoint. A resumed run may change only fields that do not affect the numbers of its steps
(MAY_CHANGE); any other change raises an error that names the field, because the second half would not be the same
experiment as the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from ..errors import ArgumentError, is_number, number, unknown, whole

Schedule = Literal["constant", "cosine", "linear", "plateau"]
Optimizer = Literal["adamw", "radam"]
Autocast = Literal["auto", "none", "bf16"]

# What a resume may change: how long to train, how often to write, and how to spend memory. The plateau schedule also
# fixes `eval_every` and `eval_rows`, because an evaluation changes its learning rate.
MAY_CHANGE = frozenset(
    "steps accumulate eval_every eval_rows save_every keep log_every checkpoint_activations tensorboard".split()
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Steps, batches, optimizer, learning rate, and how often to evaluate, log and save."""

    steps: int = 1000
    """Total number of optimizer steps."""

    batch_size: int = 16
    """Examples per step, over all processes and micro-batches."""

    accumulate: int = 1
    """Micro-batches per step: more of them need less memory and take the same step."""

    lr: float = 1e-3
    """Peak learning rate."""

    min_lr: float = 0.0
    """Final learning rate of cosine and linear, and the lower bound of plateau."""

    warmup: int = 0
    """Steps over which the learning rate rises linearly from 0."""

    schedule: Schedule = "cosine"
    """Schedule of the learning rate after the warm-up: constant, cosine, linear or plateau."""

    plateau_patience: int = 3
    """Evaluations without a better loss before plateau cuts the learning rate."""

    plateau_factor: float = 0.5
    """Factor by which plateau multiplies the learning rate."""

    optimizer: Optimizer = "adamw"
    """adamw or radam, both with decoupled weight decay."""

    betas: tuple[float, float] = (0.9, 0.99)
    """Decay rates of the running means of the gradient and of its square."""

    eps: float = 1e-8
    """Added to the root of the mean square."""

    weight_decay: float = 0.01
    """Decoupled weight decay of matrices; norms, biases and other vectors do not decay."""

    decay_all: bool = False
    """Apply weight decay to every parameter, including norms and biases."""

    clip: float = 1.0
    """Largest norm of the whole gradient; 0 does not clip."""

    clip_each: float = 0.0
    """Largest norm of each tensor's gradient, instead of `clip`; 0 is off."""

    seed: int = 0
    """Seed of the order of the examples and of dropout."""

    eval_every: int = 0
    """Steps between evaluations on the held-out rows; 0 evaluates only after the last step."""

    eval_rows: int = 0
    """How many held-out rows to evaluate, from the first; 0 evaluates all."""

    save_every: int = 0
    """Steps between checkpoints; 0 saves only after the last step or when a signal stops the run."""

    keep: int = 3
    """How many checkpoints to keep in addition to the best one."""

    log_every: int = 1
    """Steps between lines of the log."""

    autocast: Autocast = "auto"
    """Matrix products in bfloat16: none, bf16, or auto to measure which is faster on this machine."""

    checkpoint_activations: bool = False
    """Recompute each block in the backward pass instead of keeping its activations."""

    tensorboard: bool = False
    """Also write the log for TensorBoard (needs the extra `train`)."""

    def __post_init__(self) -> None:
        if isinstance(self.betas, list):  # from JSON
            object.__setattr__(self, "betas", tuple(self.betas))
        for name in ("steps", "batch_size", "accumulate", "plateau_patience", "keep", "log_every"):
            whole(name, getattr(self, name), 1)
        for name in ("warmup", "seed", "eval_every", "eval_rows", "save_every"):
            whole(name, getattr(self, name), 0)
        for name in ("min_lr", "eps", "weight_decay", "clip", "clip_each"):
            number(name, getattr(self, name), 0)
        number("lr", self.lr, above=0)
        number("plateau_factor", self.plateau_factor, above=0, below=1)
        for name in ("decay_all", "checkpoint_activations", "tensorboard"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(name, getattr(self, name), "True or False")
        for name, kind in (("schedule", Schedule), ("optimizer", Optimizer), ("autocast", Autocast)):
            if getattr(self, name) not in get_args(kind):
                raise unknown(name, getattr(self, name), get_args(kind))
        self._check_pairs()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `from_dict` restores the same configuration."""
        return asdict(self) | {"betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Return the configuration in a JSON object; missing fields take their defaults."""
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise unknown("field of TrainConfig", name, names)
        return cls(**values)

    def difference(self, other: TrainConfig) -> str | None:
        """Return the first field that differs and that a resumed run may not change, or None."""
        fixed = {"eval_every", "eval_rows"} if self.schedule == "plateau" else set()
        names = [field.name for field in fields(self) if field.name not in MAY_CHANGE - fixed]
        return next((name for name in names if getattr(self, name) != getattr(other, name)), None)

    def _check_pairs(self) -> None:
        """Check the fields that depend on each other."""
        two = isinstance(self.betas, tuple) and len(self.betas) == 2
        if not (two and all(is_number(b) and 0 <= b < 1 for b in self.betas)):
            raise ArgumentError("betas", self.betas, "two numbers of 0 or more, below 1")
        if self.batch_size % self.accumulate:
            raise ArgumentError("accumulate", self.accumulate, f"a divisor of batch_size ({self.batch_size})")
        if self.min_lr > self.lr:
            raise ArgumentError("min_lr", self.min_lr, f"at most lr ({self.lr})")
        if self.warmup > self.steps:
            raise ArgumentError("warmup", self.warmup, f"at most steps ({self.steps})")
        if self.schedule == "plateau" and not self.eval_every:
            raise ArgumentError("eval_every", 0, "1 or more with schedule 'plateau', which follows the held-out loss")
