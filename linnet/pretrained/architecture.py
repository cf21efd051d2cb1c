"""Architecture: how one kind of published model is written as a linnet LanguageModel, in both directions.

    config = architecture.read(fields)       the fields of its config.json -> our configuration, or a refusal by name
    parts = architecture.parts(config)       every tensor of ours, and the tensors of a file that it is made of
    model = assemble(weights)                checks all names and shapes of the file, then reads and builds
    fields = architecture.write(config)      the reverse of `read`, for export.py

A Part stacks tensors of the file along their first axis, optionally puts the rows into another order and scales and
shifts the numbers, so that the reverse is defined as well. One file of this folder describes one family of models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.tokenizer import Tokenizer
from ..models.config import ModelConfig
from ..models.language import LanguageModel
from ..models.weights_file import Shape, check_layers, check_weights
from .fields import Fields

Sizes = tuple[int, ...]
EMBED, HEAD, NORM = "embed.weight", "head.weight", "backbone.norm.weight"  # names in a LanguageModel


class Part(NamedTuple):
    """A tensor of ours, as factor * stacked(theirs) + shift with the rows in the given order.

    order: row i of ours is row order()[i] of the stack. factor: one number, or a function that returns one for each row
    of ours. Both are functions because the sizes come from the file's config.json, and must have been compared with its
    tensors before a tensor is made from them.
    """

    ours: str
    theirs: Mapping[str, Sizes]  # name in the file -> shape there
    order: Callable[[], Tensor] | None = None
    factor: float | Callable[[], Tensor] = 1.0
    shift: float = 0.0

    def join(self, fetch: Callable[[str], Tensor], shape: Sizes) -> Tensor:
        """Return our tensor from theirs, in float32."""
        tensors = [fetch(name).float() for name in self.theirs]
        rows = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        rows = rows if self.order is None else rows[self.order()]
        rows = rows if self.factor == 1 else rows * self._factor(rows)
        return (rows + self.shift if self.shift else rows).reshape(shape)

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """Return their tensors from ours, in float32: the reverse of `join`."""
        counts = [shape[0] for shape in self.theirs.values()]
        rows = tensor.detach().float().reshape(sum(counts), -1)
        rows = rows - self.shift if self.shift else rows
        rows = rows if self.factor == 1 else rows / self._factor(rows)
        rows = rows if self.order is None else rows[self.order().argsort()]
        pieces = zip(self.theirs.items(), rows.split(counts), strict=True)
        return {name: piece.reshape(shape).contiguous() for (name, shape), piece in pieces}

    def _factor(self, rows: Tensor) -> Tensor | float:
        return self.factor().view(-1, *[1] * (rows.ndim - 1)) if callable(self.factor) else self.factor


class Outer(NamedTuple):
    """Names in the file of the tensors outside the layers."""

    embed: str
    norm: str
    head: str = "lm_head.weight"

    def parts(self, config: ModelConfig) -> list[Part]:
        """Return embedding, last norm, and the head unless it is the embedding."""
        table = (config.vocab_size, config.d_model)
        parts = [Part(EMBED, {self.embed: table}), Part(NORM, {self.norm: (config.d_model,)})]
        return parts if config.tie_embeddings else [*parts, Part(HEAD, {self.head: table})]


class Architecture(NamedTuple):
    """One `model_type` of transformers."""

    name: str  # its model_type
    model_class: str  # its class in transformers
    mixers: tuple[str, ...]  # of its layers, by our names
    outer: Outer
    read: Callable[[Fields], ModelConfig]
    parts: Callable[[ModelConfig], Iterable[Part]]
    write: Callable[[ModelConfig], dict[str, Any]]
    ignored: frozenset[str] = frozenset()  # fields of config.json that change no logit, besides fields.COMMON
    dropped: tuple[str, ...] = ()  # ends of the names of tensors that are tables, not weights
    scaled: Callable[[Fields, Iterable[Part]], Iterable[Part]] | None = None  # folds fields of a file into its weights

    def config(self, where: str, values: Mapping[str, Any]) -> ModelConfig:
        """Return our configuration; raise ValueError, with the file, for a field that it cannot follow."""
        fields = Fields(where, values)
        fields.only("model_type", self.name)
        try:
            config = self.read(fields)
        except ValueError as error:
            raise error if str(error).startswith(where) else ValueError(f"{where}: {error}") from None
        fields.close(self.name, self.ignored)
        return config


class Weights(NamedTuple):
    """The contents of a file: names and shapes are known, tensors are read by `fetch`."""

    where: str  # the file, for errors
    config: ModelConfig
    parts: Callable[[ModelConfig], Iterable[Part]]
    shapes: Mapping[str, Sizes]  # every tensor of the file by its name there
    fetch: Callable[[str], Tensor]  # reads one of them
    tokenizer: Callable[[], Tokenizer | None] = lambda: None  # reads the one stored with the weights


def assemble(weights: Weights) -> LanguageModel:
    """Build the model; the error names a missing, unexpected or misshapen tensor."""
    check_layers(weights.config, len(weights.shapes), weights.where)
    parts = list(weights.parts(weights.config))
    wanted = {name: Shape(tuple(shape)) for part in parts for name, shape in part.theirs.items()}
    check_weights({name: Shape(tuple(shape)) for name, shape in weights.shapes.items()}, wanted, weights.where)
    with torch.device("meta"):  # shapes only, until all weights are read
        model = LanguageModel(weights.config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    state = {part.ours: part.join(weights.fetch, shapes[part.ours]) for part in parts}
    model.load_state_dict(state, assign=True)
    return model.eval()
