"""The options that `linnet train` text, image, speech and stream share: model, training, and where a run goes.

Training options are the fields of linnet.train.TrainConfig with defaults for each kind of data; nothing here imports
torch, so that help comes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from ..train.config import Autocast as Autocast  # cyclopts looks for the types of inherited fields here
from ..train.config import Optimizer as Optimizer
from ..train.config import Schedule as Schedule
from ..train.config import TrainConfig

FLAG = Parameter(negative="")
SEVERAL = Parameter(consume_multiple=True, negative="")
MODEL = Group("Model", sort_key=2)
TRAINING = Parameter(name="*", group=Group("Training", sort_key=3), negative_iterable="")
WARMUP = 100
VOCAB_SIZE = 2048  # of a tokenizer that is learned
Strategy = Literal["auto", "ddp", "fsdp", "sequence"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What to change in the preset."""

    preset: str | None = None
    """A model by name; `linnet train presets` lists them."""
    mixer: Annotated[list[str] | None, SEVERAL] = None
    """elu, rebased, taylor, softmax, window, conv ...; several names repeat over the layers."""
    d_model: int | None = None
    """Width."""
    n_layers: int | None = None
    """Blocks."""
    n_heads: int | None = None
    """Heads."""
    n_kv_heads: int | None = None
    """Heads of keys and values, when fewer."""
    key_dim: int | None = None
    """Width of a head's queries and keys, when not that of its values."""
    positions: str | None = None
    """none, learned, sinusoidal or rotary."""
    mlp: str | None = None
    """relu, gelu, swiglu or none."""
    norm: str | None = None
    """layer or rms."""
    dropout: float | None = None
    """Share of numbers dropped while training."""
    head: str | None = None
    """Of an image model: categorical or mixture (of 10 logistics)."""

    def changes(self) -> dict[str, Any]:
        """Fields of ModelConfig that were given, and the preset."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        if self.mixer:
            given["mixer"] = self.mixer[0] if len(self.mixer) == 1 else tuple(self.mixer)
        return given


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run goes and who takes part."""

    out: Path | None = None
    """Folder of the run: checkpoints, log.jsonl, run.json. Default: runs/ and the kind of data."""
    resume: Annotated[bool, FLAG] = False
    """Continue the run in --out, bit for bit; starts anew if there is none yet."""
    strategy: Strategy = "auto"
    """Under torchrun: ddp, fsdp (weights in slices) or sequence (one long sequence over all processes)."""
    threads: int | None = None
    """CPU threads of this process."""


@dataclass(frozen=True, kw_only=True)
class TextTraining(TrainConfig):
    """The laptop recipe."""

    steps: int = 1200
    batch_size: int = 16
    lr: float = 4e-3
    warmup: int = WARMUP
    weight_decay: float = 0.1
    eval_every: int = 200
    save_every: int = 200

    def __post_init__(self) -> None:
        if self.warmup == WARMUP and 0 < self.steps < WARMUP:  # nobody asked for it: a short trial needs no --warmup
            object.__setattr__(self, "warmup", self.steps // 10)
        super().__post_init__()

    def plain(self) -> TrainConfig:
        return TrainConfig.from_dict({f.name: getattr(self, f.name) for f in fields(TrainConfig)})


@dataclass(frozen=True, kw_only=True)
class ImageTraining(TextTraining):
    """For small images."""

    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class SpeechTraining(TextTraining):
    """For an hour of speech."""

    lr: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class StreamTraining(TextTraining):
    """For tens of thousands of measurements."""

    lr: float = 2e-3
    steps: int = 600


Model = Annotated[ModelOptions | None, Parameter(name="*", group=MODEL)]
Where = Annotated[Run | None, Parameter(name="*")]
