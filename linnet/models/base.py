"""Model: a network with a loss, saved to a folder and loaded from it.

    total, n = model.loss(batch)                        sum of nats, differentiable, and the number of terms
    model.save_pretrained(folder)                       writes config.json and model.safetensors
    Model.from_pretrained(folder)                       also takes a run's folder: its best checkpoint by held-out loss

The header of model.safetensors holds a fingerprint of configuration and weights, so that a damaged file is refused.

Loss and metrics are (sum, count) pairs, so they add up over batches and processes of unequal size.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..atomic import Created, atomic
from ..errors import brief
from ..json_file import read_object
from ..layers import LearnedPositions
from ..lock import exclusive
from .backbone import Backbone
from .config import ModelConfig
from .folder import CONFIG as CONFIG
from .folder import WEIGHTS as WEIGHTS
from .folder import ModelFolder, find_model
from .state import ModelState
from .tensor_file import READABLE as READABLE
from .tensor_file import read_tensors, write_tensors
from .weights_file import check_sizes
from .weights_file import check_weights as check_weights

CHECKSUM = "fingerprint"  # in the header of model.safetensors
RESTORE = "restore it from the run it came from"
M = TypeVar("M", bound="Model")


class Model(nn.Module, ABC):
    """Base class of all models. Subclasses set `backbone` and define `loss`."""

    backbone: Backbone

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def blocks(self) -> nn.ModuleList:
        """Blocks that sharding, activation checkpointing and the search for a NaN treat one by one."""
        return self.backbone.blocks

    @abstractmethod
    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return (sum of nats, count) over a batch, two scalars; the first is differentiable."""

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return name -> (sum, count); "bits" is the loss in bits."""
        total, n = self.loss(batch)
        return {"loss": (total, n), "bits": (total / math.log(2), n)}

    def initialize(self) -> None:
        """Draw weights of std config.init_std, smaller by sqrt(2 depth) at the end of a branch; zero the biases."""
        std = self.config.init_std
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                ends_a_branch = name.endswith((".out", ".down"))
                nn.init.normal_(module.weight, std=std / math.sqrt(2 * len(self.blocks)) if ends_a_branch else std)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, LearnedPositions):
                nn.init.normal_(module.weight, std=std)

    def parameter_count(self) -> int:
        """Return the number of parameters."""
        return sum(p.numel() for p in self.parameters())

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes of state per sequence after `length` tokens."""
        return self.backbone.state_bytes(length, dtype)

    def fingerprint(self) -> str:
        """Return eight hex digits that identify configuration and weights, to match states with models."""
        return fingerprint_of(self.config.identity(), self.state_dict())

    def save_pretrained(self, folder: str | os.PathLike[str], state: Mapping[str, Tensor] | None = None) -> None:
        """Write config.json and model.safetensors atomically; `state` replaces the state dict, for sharded models."""
        folder = Path(folder)
        weights = self.state_dict() if state is None else state
        tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        config = self.config.to_dict()
        with exclusive(folder), Created(folder), atomic(folder / CONFIG) as file:  # written together, then renamed
            file.write((json.dumps(config, indent=2) + "\n").encode())
            file.flush()
            write_tensors(folder / WEIGHTS, tensors, {CHECKSUM: fingerprint_of(config, tensors)})

    @classmethod
    def from_pretrained(cls: type[M], folder: str | os.PathLike[str], *, checkpoint: str | None = None) -> M:
        """Load the model of a folder written by `save_pretrained` or a run; `checkpoint` as in `linnet.load`."""
        place = find_model(Path(folder), checkpoint)
        model, _ = open_model(place)
        if not isinstance(model, cls):
            raise ValueError(f"{place.folder} holds a {type(model).__name__}, not a {cls.__name__}")
        return model

    def load_weights(self, path: Path, *, verified: bool = False) -> bool:
        """Load weights from a safetensors file; raise ValueError for damage or for a tensor that does not fit.

        Return whether the content was compared with a checksum, here or earlier (`verified`).
        """
        if not path.is_file():
            raise ValueError(f"{path} does not exist; accepted: a folder with {CONFIG} and {WEIGHTS}")
        header, weights = read_tensors(path)
        check_weights(weights, self.state_dict(), str(path))
        wanted = None if verified else header.get(CHECKSUM)
        if wanted is not None and wanted != fingerprint_of(_values(path.parent / CONFIG), weights):
            raise ValueError(
                f"{path} or the {CONFIG} next to it is damaged: the {CHECKSUM} is not {brief(wanted)}; copy both "
                "again or use a backup"
            )
        self.load_state_dict(weights)
        return verified or wanted is not None


class StreamModel(Model):
    """A model that can be stepped: `embed_inputs` comes before its blocks, `apply_head` after them."""

    @abstractmethod
    def embed_inputs(self, x: Tensor) -> Tensor:
        """Check tokens [...] or numbers [...,C] and map them to [...,E]."""

    @abstractmethod
    def apply_head(self, h: Tensor, x: Tensor) -> Tensor:
        """Map the output h [...,E] of the blocks, and the inputs x, to the output of the model."""

    def step(self, x: Tensor, state: ModelState | None = None) -> tuple[Tensor, ModelState]:
        """Return the output for the next input x [B] or [B,C], equal to the last of `forward`, and the state."""
        h, new = self.backbone.step(self.embed_inputs(x), state)
        return self.apply_head(h, x), new

    def read(
        self, x: Tensor, state: ModelState | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, ModelState]:
        """Return the output after the last real input of x [B,T] or [B,T,C] only, and the state."""
        h, new = self.backbone(self.embed_inputs(x), state, mask=mask)
        return self.apply_head(last_real(h, mask), last_real(x, mask)), new


def last_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [B,T,...] at the last True of each row of mask [B,T], as [B,...]; a row has at least one."""
    if mask is None:
        return x[:, -1]
    last = mask.shape[1] - 1 - mask.flip(1).long().argmax(1)
    return x[torch.arange(len(x), device=x.device), last]


def fingerprint_of(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """Return the CRC-32 of the configuration as JSON, then of name and bytes of every tensor, sorted by name."""
    crc = zlib.crc32(json.dumps(config, sort_keys=True).encode())
    for name, value in sorted(weights.items()):
        data = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data  # 1-d, also for scalars
        crc = zlib.crc32(data, zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def open_model(place: ModelFolder) -> tuple[Model, tuple[str, ...]]:
    """Return the model with verified weights, and notes: which checkpoint it is, or that there is no checksum."""
    from . import build  # not at the top: it imports this file

    config = read_config(place.folder)
    check_sizes(config, place.folder / WEIGHTS)  # before a damaged configuration allocates memory
    model = build(config)
    compared = model.load_weights(place.folder / WEIGHTS, verified=place.trainer is not None)
    notes = [place.note] if place.note else []
    if not compared:
        notes.append(f"{place.folder / WEIGHTS} was written by an older linnet without a checksum; it is not verified")
    return model, tuple(notes)


def read_config(folder: Path) -> ModelConfig:
    """Read config.json; raise ValueError for a missing, damaged or foreign one."""
    values = _values(folder / CONFIG)
    if "model_type" in values:
        raise ValueError(
            f"{folder} is a Hugging Face folder (model_type {values['model_type']!r}); load it with linnet.hf, or a "
            "published one with `linnet import`"
        )
    try:
        return ModelConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}; {RESTORE}") from None


def _values(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: a folder that a training run or save_pretrained wrote")
    return read_object(path, RESTORE)
