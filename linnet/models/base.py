"""Model: a network with a loss, that goes to a folder and comes back.

    total, n = model.loss(batch)                        sum of nats with its graph, and how many they are a sum of
    model.save_pretrained(folder)                       config.json and model.safetensors, nothing else
    Model.from_pretrained(folder)                       also a run's folder: its best checkpoint by held-out loss

The header of model.safetensors has the fingerprint of configuration and weights: what was damaged since is refused.

Loss and metrics are sums with counts, so they add up over batches and processes, however ragged.
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
from .folder import Found, find
from .state import ModelState
from .tensor_file import read_tensors, write_tensors
from .weights_file import check_sizes
from .weights_file import check_weights as check_weights

CHECKSUM = "fingerprint"  # in the header of model.safetensors
RESTORE = "restore it from the run it came from"
READABLE = 0o644  # as any other file; some versions of safetensors write for the owner's eyes only
M = TypeVar("M", bound="Model")


class Model(nn.Module, ABC):
    """Subclasses set `backbone` and define `loss`."""

    backbone: Backbone

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def blocks(self) -> nn.ModuleList:
        """The layers, for whatever treats them one by one: sharding, activation checkpointing, the search for a NaN."""
        return self.backbone.blocks

    @abstractmethod
    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(sum of nats, count) over a batch; both scalars, the first with its graph."""

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """name -> (sum, count); "bits" is the loss in bits."""
        total, n = self.loss(batch)
        return {"loss": (total, n), "bits": (total / math.log(2), n)}

    def initialize(self) -> None:
        """Normal weights of config.init_std, zero biases; what each branch adds is scaled down by its depth."""
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
        return sum(p.numel() for p in self.parameters())

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of state per sequence after `length` tokens."""
        return self.backbone.state_bytes(length, dtype)

    def fingerprint(self) -> str:
        """Eight hex digits that change with the configuration or any weight: whose state is this?"""
        return fingerprint_of(self.config.identity(), self.state_dict())

    def save_pretrained(self, folder: str | os.PathLike[str], state: Mapping[str, Tensor] | None = None) -> None:
        """Write config.json and model.safetensors, each in one atomic move; `state`: weights gathered elsewhere."""
        folder = Path(folder)
        weights = self.state_dict() if state is None else state
        tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        config = self.config.to_dict()
        with exclusive(folder), Created(folder), atomic(folder / CONFIG) as file:  # both are written, then renamed
            file.write((json.dumps(config, indent=2) + "\n").encode())
            file.flush()
            write_tensors(folder / WEIGHTS, tensors, {CHECKSUM: fingerprint_of(config, tensors)})

    @classmethod
    def from_pretrained(cls: type[M], folder: str | os.PathLike[str], *, checkpoint: str | None = None) -> M:
        """The model in a folder that `save_pretrained` or a training run wrote; `checkpoint` as in `linnet.load`."""
        found = find(Path(folder), checkpoint)
        model, _ = open_model(found)
        if not isinstance(model, cls):
            raise ValueError(f"{found.folder} holds a {type(model).__name__}, not a {cls.__name__}")
        return model

    def load_weights(self, path: Path, *, verified: bool = False) -> bool:
        """Weights from a safetensors file; a damaged file, a missing, foreign or misshapen tensor is named.

        Returns whether the content was compared with a checksum: one in the file, or before (`verified`).
        """
        if not path.is_file():
            raise ValueError(f"{path} does not exist; accepted: a folder with {CONFIG} and {WEIGHTS}")
        header, weights = read_tensors(path)
        check_weights(weights, self.state_dict(), str(path))
        wanted = None if verified else header.get(CHECKSUM)
        if wanted is not None and wanted != fingerprint_of(_values(path.parent / CONFIG), weights):
            raise ValueError(
                f"{path} or the {CONFIG} beside it is damaged: the {CHECKSUM} is not {brief(wanted)}; copy both "
                "again or use a backup"
            )
        self.load_state_dict(weights)
        return verified or wanted is not None


class StreamModel(Model):
    """A model that takes one input after the other: `enter` and `leave` are what stands before and after its blocks."""

    @abstractmethod
    def enter(self, x: Tensor) -> Tensor:
        """Tokens [...] or numbers [...,C], checked -> [...,E]."""

    @abstractmethod
    def leave(self, h: Tensor, x: Tensor) -> Tensor:
        """What the blocks made of the inputs, [...,E], and the inputs themselves -> the answer of the model."""

    def step(self, x: Tensor, state: ModelState | None = None) -> tuple[Tensor, ModelState]:
        """The next input of every row, [B] or [B,C] -> the last answer `forward` would give, and the state after it."""
        h, new = self.backbone.step(self.enter(x), state)
        return self.leave(h, x), new

    def read(
        self, x: Tensor, state: ModelState | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, ModelState]:
        """Many inputs at once, [B,T] or [B,T,C] -> the answer after the last real one only, and the state after it."""
        h, new = self.backbone(self.enter(x), state, mask=mask)
        return self.leave(last_real(h, mask), last_real(x, mask)), new


def last_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """x [B,T,...] -> [B,...]: what stands at the last True of each row of mask [B,T]; a row has at least one."""
    if mask is None:
        return x[:, -1]
    last = mask.shape[1] - 1 - mask.flip(1).long().argmax(1)
    return x[torch.arange(len(x), device=x.device), last]


def fingerprint_of(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """CRC-32 over the configuration as JSON, then the name and the bytes of every tensor, in the order of the names."""
    crc = zlib.crc32(json.dumps(config, sort_keys=True).encode())
    for name, value in sorted(weights.items()):
        data = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data  # a row, for single numbers too
        crc = zlib.crc32(data, zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def open_model(found: Found) -> tuple[Model, tuple[str, ...]]:
    """The model of a folder, its weights verified, and notes: which checkpoint it is, or that nothing was verified."""
    from . import build  # the list of models, which imports this file

    config = read_config(found.folder)
    check_sizes(config, found.folder / WEIGHTS)  # before the memory of a model is taken on its word
    model = build(config)
    compared = model.load_weights(found.folder / WEIGHTS, verified=found.trainer is not None)
    notes = [found.note] if found.note else []
    if not compared:
        notes.append(f"{found.folder / WEIGHTS} has no checksum, as an older linnet wrote it; it is taken as it is")
    return model, tuple(notes)


def read_config(folder: Path) -> ModelConfig:
    values = _values(folder / CONFIG)
    if "model_type" in values:
        raise ValueError(
            f"{folder} is a Hugging Face folder (model_type {values['model_type']!r}); load it with linnet.hf, or a "
            "Llama-type model with `linnet import`"
        )
    try:
        return ModelConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}; {RESTORE}") from None


def _values(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: a folder that a training run or save_pretrained wrote")
    return read_object(path, RESTORE)
