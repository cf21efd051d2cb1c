"""PackedModel: a model packed for the native decoder, each layer a struct of numbers and addresses.

    packed = PackedModel(model, weights="int8")      BackendError with the reason if only torch can run it

`weights` is the dtype of the large matrices: float32, bfloat16, or int8 with one scale per output (the inputs of such a
matrix are rounded to 8 bits too). Norms, biases, embeddings, feature maps and states stay float32. The adapters of
mixers/ pack what is specific to a mixer.
"""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import addressof
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BackendError, unknown
from ...layers import Block
from ...layers.mlp import MLP
from ...layers.positions import LearnedPositions, SinusoidalPositions, angles, turn_sizes
from ...layers.rope_scaling import attention_factor
from ...models import Classifier, Forecaster, ImageModel, LanguageModel, StreamModel
from ...models.backbone import Backbone
from ...native import gate
from ...native.decode import DIGITS, MIXERS, MLPS, POSITIONS
from ...native.decode_check import verify_model
from ...native.gate import CPU
from ...native.library import library, reason
from ...native.matmul import KINDS, PANEL
from ...native.structs import Layer, Matrix, Model
from ...ops.checks import LONGEST
from .mixers import adapter_for, round_up
from .weights import PackedWeights


class PackedModel:
    """The structs of a model, the adapters of its mixers, and the sizes of a row's state."""

    def __init__(self, model: StreamModel, weights: str = "float32", *, exact: bool = True) -> None:
        check_native(model, weights)
        blocks = list(model.backbone.layers)
        self.adapters = [adapter_for(block.mixer, exact=exact) for block in blocks]
        sizes = [round_up(adapter.state_floats) for adapter in self.adapters]  # layers start on cache lines
        self.offsets = list(accumulate(sizes, initial=0))[:-1]  # of each layer in a row's state
        self.state_floats = sum(sizes)  # of one row
        self.cache_floats = sum(adapter.cache_floats for adapter in self.adapters)  # of one token
        self.weights = PackedWeights(weights)
        self.layers = (Layer * len(blocks))(*(self._layer(i, block) for i, block in enumerate(blocks)))
        self.struct = Model(**self._fields(model))
        if gate.CHECK:
            verify_model(self.struct, self.layers, self.weights.rooms)

    def _fields(self, model: StreamModel) -> dict[str, Any]:
        backbone, c, floats = model.backbone, model.config, self.weights.floats
        last: Any = backbone.norm if c.norm_place == "pre" else None
        return {
            "layers": addressof(self.layers),
            "last": floats(getattr(last, "weight", None)),
            "last_bias": floats(getattr(last, "bias", None)),
            "n_layers": c.n_layers,
            "width": c.d_model,
            "pre": c.norm_place == "pre",
            "rms": c.norm == "rms",
            "caches": sum(adapter.cache_floats > 0 for adapter in self.adapters),
            "norm_eps": c.eps_at(c.n_layers),
            "head": self.weights.matrix(*_head(model)),
            **self._input(model),
            **self._positions(model),
        }

    def _input(self, model: StreamModel) -> dict[str, Any]:
        """Pack the embedding, or the input matrix of a model that reads numbers: always float32, since it is small."""
        inputs: Any = model if isinstance(model, (LanguageModel, ImageModel)) else model.inputs
        first: Any = model.backbone.first_norm
        if inputs.embed is not None:
            table = inputs.embed.weight if first is None else _normed(first, inputs.embed.weight)
            return {"embed": self.weights.floats(table), "tokens": len(table)}
        if first is not None:
            raise BackendError("the native decoder has no embed_norm for numbers, only for tokens; use backend 'torch'")
        return {"input": self.weights.matrix(inputs.project.weight, inputs.project.bias, "float32")}

    def _positions(self, model: StreamModel) -> dict[str, Any]:
        c, positions = model.config, model.backbone.positions
        fields: dict[str, Any] = {"positions": POSITIONS[c.positions], "limit": LONGEST}
        if isinstance(positions, LearnedPositions):
            fields |= {"table": self.weights.floats(positions.weight), "limit": len(positions.weight)}
        elif isinstance(positions, SinusoidalPositions):
            waves = self.weights.keep(_waves(c.d_model, positions.base))
            fields |= {"half": (c.d_model + 1) // 2, "waves": waves, "gain": float(positions.gain.detach())}
        return fields | self._rotary(model.backbone, taken="half" in fields)

    def _rotary(self, backbone: Backbone, taken: bool) -> dict[str, Any]:
        """Pack the rotations of the heads; `taken`: the table of waves is that of sinusoidal positions."""
        widths = {block.mixer.rotary_width for block in backbone.layers} - {0}
        if taken and widths:
            raise BackendError("the native decoder has sinusoidal or rotary positions, not both; use backend 'torch'")
        if len(widths) > 1:
            raise BackendError(
                f"the native decoder turns heads of one width, but these are of {sorted(widths)}; use backend 'torch'"
            )
        width = max(widths, default=0)
        return {"half": width // 2, "waves": self.weights.keep(_waves(width, *backbone.turns))} if width else {}

    def _layer(self, i: int, block: Block) -> Layer:
        adapter = self.adapters[i]
        cached = sum(before.cache_floats > 0 for before in self.adapters[:i])
        places = {"state": self.offsets[i], "cache": cached if adapter.cache_floats else 0}
        norms = self.weights.norm(block.norm1, 1) | self.weights.norm(block.norm2, 2)
        mixer = adapter.fields(self.weights)
        eps: Any = block.norm1.eps
        places |= {"turns": block.mixer.rotary_width > 0}
        return Layer(
            mixer=MIXERS[adapter.kind], norm_eps=eps, **places, **norms, **mixer, **self._mlp(block.mlp)
        )  # fmt: skip

    def _mlp(self, mlp: nn.Module | None) -> dict[str, Any]:
        if not isinstance(mlp, MLP):
            return {"mlp": MLPS["none" if mlp is None else "identity"]}
        hidden = {"mlp": MLPS[mlp.kind], "hidden": mlp.down.weight.shape[1]}
        return hidden | {"up": self._up(mlp), "down": self.weights.linear(mlp.down)}

    def _up(self, mlp: MLP) -> Matrix:
        weight: Tensor = mlp.up.weight
        bias: Tensor | None = mlp.up.bias
        if mlp.kind == "swiglu":
            weight, bias = _alternating(weight), None if bias is None else _alternating(bias)
        return self.weights.matrix(weight, bias)


def check_native(model: StreamModel, weights: str) -> None:
    """Raise BackendError with the reason unless the native decoder can run this model."""
    if weights not in KINDS:
        raise unknown("weights", weights, KINDS)
    if library() is None:
        raise BackendError(f"the native decoder is not available: {reason()}")
    for name, x in model.named_parameters():
        if x.device.type != "cpu":
            raise BackendError(f"the native decoder runs on the cpu, but {name} is on {x.device}; use model.cpu()")
        if x.dtype != torch.float32:
            raise BackendError(f"the native decoder takes float32 models, but {name} is {x.dtype}; use model.float()")


def _head(model: StreamModel) -> tuple[Tensor, Tensor | None]:
    if isinstance(model, LanguageModel):
        return model.out_weight, None
    if isinstance(model, ImageModel) and model.head is None:
        return model.embed.weight[: model.levels], None
    if isinstance(model, (ImageModel, Forecaster, Classifier)) and model.head is not None:
        return model.head.weight, model.head.bias
    raise BackendError(f"the native decoder does not know a {type(model).__name__}; use backend 'torch'")


@torch.no_grad()
def _normed(norm: nn.Module, table: Tensor) -> Tensor:  # [N,E]
    """Return the norm of every embedding, which depends on nothing else."""
    return norm(table)


def _alternating(x: Tensor) -> Tensor:  # [2 F, ...] gates, then values -> 32 gates, 32 values, 32 gates ...
    gate, value = (nn.functional.pad(part, (0, 0) * (x.ndim - 1) + (0, -len(part) % PANEL)) for part in x.chunk(2))
    return torch.stack((gate.unflatten(0, (-1, PANEL)), value.unflatten(0, (-1, PANEL))), dim=1).flatten(0, 2)


def _waves(
    width: int, base: float, scaling: Mapping[str, Any] | None = None, fraction: float | None = None
) -> Tensor:  # [DIGITS,256,width/2,2]
    """Return cos, sin for every digit of a position in base 256: its rotation is the product of those of its digits.

    The lowest digit is in every product, so only its table carries the attention factor of a yarn scaling.
    """
    steps = torch.arange(256, device=CPU) * 256 ** torch.arange(DIGITS, device=CPU)[:, None]
    turn = angles(steps, width, base, scaling, fraction)
    waves = torch.stack((turn.cos(), turn.sin()), dim=-1).contiguous()
    if scaling is not None:
        waves[0] *= turn_sizes(turn, width, attention_factor(scaling), fraction)[:, None]
    return waves
