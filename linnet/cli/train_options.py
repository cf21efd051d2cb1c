"""The options that `linnet train` text, image, speech and stream share: the model, the training, the run's folder.

Training options are the fields of linnet.train.TrainConfig with defaults for each kind of data. Nothing here imports
torch, so that `--help` prints immediately.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from ..train.config import Autocast as Autocast  # cyclopts resolves the types of inherited fields in this module
from ..train.config import Optimizer as Optimizer
from ..train.config import Schedule as Schedule
from ..train.config import TrainConfig
from .common import FLAG, SEVERAL

MODEL = Group("Model", sort_key=2)
TRAINING = Parameter(name="*", group=Group("Training", sort_key=3), negative_iterable="")
WARMUP = 100
VOCAB_SIZE = 2048  # of a tokenizer that is trained on the text
Strategy = Literal["auto", "ddp", "fsdp", "sequence"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Fields of the preset to change."""

    preset: str | None = None
    """The model to start from; `linnet train presets` lists them."""
    mixer: Annotated[list[str] | None, SEVERAL] = None
    """elu, rebased, taylor, softmax, window, conv ...; several names alternate over the layers."""
    d_model: int | None = None
    """Width of the model."""
    n_layers: int | None = None
    """Number of blocks."""
    n_heads: int | None = None
    """Number of heads."""
    n_kv_heads: int | None = None
    """Number of key and value heads, if fewer."""
    key_dim: int | None = None
    """Width of a head's queries and keys, if different from that of its values."""
    positions: str | None = None
    """none, learned, sinusoidal or rotary."""
    mlp: str | None = None
    """relu, gelu, swiglu or none."""
    norm: str | None = None
    """layer or rms."""
    dropout: float | None = None
    """Dropout probability."""
    head: str | None = None
    """Of an image model: categorical or mixture (of 10 logistics)."""

    def changes(self) -> dict[str, Any]:
        """Return the given fields of ModelConfig, and the preset."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        if self.mixer:
            given["mixer"] = self.mixer[0] if len(self.mixer) == 1 else tuple(self.mixer)
        return given


@dataclass(frozen=True, kw_only=True)
class Run:
    """The folder of a run, and the processes that train it."""

    out: Path | None = None
    """Folder of the run: checkpoints, log.jsonl, run.json. Default: runs/ followed by the kind of data."""
    resume: Annotated[bool, FLAG] = False
    """Continue the run in --out, bit for bit; start a new one if there is none yet."""
    strategy: Strategy = "auto"
    """Under torchrun: ddp, fsdp (sharded weights) or sequence (each sequence split over all processes)."""
    threads: int | None = None
    """CPU threads of this process."""


@dataclass(frozen=True, kw_only=True)
class Training(TrainConfig):
    """Defaults for a laptop that all kinds of data share; each kind below overrides only what differs."""

    steps: int = 1200
    batch_size: int = 16
    lr: float = 4e-3
    warmup: int = WARMUP
    weight_decay: float = 0.1
    eval_every: int = 200
    save_every: int = 200

    def __post_init__(self) -> None:
        if self.warmup == WARMUP and 0 < self.steps < WARMUP:  # the default: a short trial needs no --warmup
            object.__setattr__(self, "warmup", self.steps // 10)
        super().__post_init__()

    def plain(self) -> TrainConfig:
        """Return the same values as a TrainConfig."""
        return TrainConfig.from_dict({f.name: getattr(self, f.name) for f in fields(TrainConfig)})


@dataclass(frozen=True, kw_only=True)
class TextTraining(Training):
    """For a megabyte of text."""


@dataclass(frozen=True, kw_only=True)
class ImageTraining(Training):
    """For small images."""

    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class SpeechTraining(Training):
    """For an hour of speech."""

    lr: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class StreamTraining(Training):
    """For tens of thousands of measurements."""

    lr: float = 2e-3
    steps: int = 600


Model = Annotated[ModelOptions | None, Parameter(name="*", group=MODEL)]
Where = Annotated[Run | None, Parameter(name="*")]
