"""A model as the native decoder takes it: every weight packed once, every layer a struct of plain numbers.

    program = Program(model, weights="int8")         or BackendError, with the reason, where only torch can run it

`weights` is how the large matrices are stored: float32, bfloat16, or int8 with one scale for each output (the input of
such a matrix is rounded to 8 bits too). Norms, biases, embeddings, feature maps and states stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BackendError, unknown
from ..layers import Block, GatedConv, LinearAttention, SoftmaxAttention, WindowAttention
from ..layers.attention import Attention
from ..layers.mlp import MLP
from ..layers.positions import LearnedPositions, SinusoidalPositions, angles
from ..layers.rope_scaling import attention_factor
from ..layers.short_conv import BaseConv
from ..models import Classifier, Forecaster, ImageModel, LanguageModel, StreamModel
from ..native import gate
from ..native.decode import DIGITS, LAYER, MIXERS, MLPS, MODEL, NO_MATRIX, POSITIONS, Packet, check_sizes
from ..native.decode_check import rooms, verify_model
from ..native.gate import CPU, address, dense
from ..native.library import library, reason
from ..native.matmul import KINDS, PANEL, Packed, pack
from ..ops.checks import LONGEST
from .maps import packed_map

NO_MAP = (0,) * 14 + (0.0,) * 6
BLOCK = 16  # tokens in a block of cached keys


class Program:
    """The structs of a model, and the sizes of its states."""

    def __init__(self, model: StreamModel, weights: str = "float32", *, exact: bool = True) -> None:
        check_native(model, weights)
        check_sizes()
        self.weights, self.exact = weights, exact
        self.bytes = 0  # of the matrices a step reads
        self.state_floats = self.caches = 0  # of one row; layers with a cache
        self.offsets: list[int] = []
        self._kept: list[Any] = []
        self.packet = self._model(model)
        if gate.CHECK:
            verify_model(self.packet, self.rooms)
        softmax = (b.mixer for b in model.backbone.layers if isinstance(b.mixer, SoftmaxAttention))
        self.cache_floats = sum(m.n_kv_heads * (m.key_dim + m.head_dim) for m in softmax)  # of one token

    def _model(self, model: StreamModel) -> Packet:
        backbone, c = model.backbone, model.config
        layers = b"".join(self._layer(block) for block in backbone.layers)
        table = Packet(layers)
        embed, entry = self._input(model)
        positions = backbone.positions
        learned = self._float(positions.weight) if isinstance(positions, LearnedPositions) else None
        half, waves, gain = 0, None, 0.0
        if isinstance(positions, SinusoidalPositions):
            half, gain = (c.d_model + 1) // 2, float(positions.gain.detach())
            waves = self._keep(_waves(c.d_model, positions.base))
        elif c.positions == "rotary":
            width = c.key_dim or c.head_dim or c.d_model // c.n_heads
            half, waves = width // 2, self._keep(_waves(width, c.rotary_base, c.rotary_scaling))
        last = backbone.norm if c.norm_place == "pre" else None
        ends = [self._float(getattr(last, name, None)) for name in ("weight", "bias")]
        pointers = (table.address, *map(address, ends), address(embed), address(learned), address(waves))
        sizes = (
            c.n_layers,
            c.d_model,
            c.norm_place == "pre",
            c.norm == "rms",
            POSITIONS[c.positions],
            half,
            self.caches,
            0 if embed is None else len(embed),
            LONGEST if learned is None else len(learned),
        )
        head = self._matrix(*_head(model))
        data = MODEL.pack(*pointers, *sizes, c.norm_eps, gain, *entry, *head)
        return Packet(data, table)

    def _input(self, model: StreamModel) -> tuple[Tensor | None, tuple[int, ...]]:
        """An embedding, or the matrix numbers come in through: always float32, it is small."""
        inputs: Any = model if isinstance(model, (LanguageModel, ImageModel)) else model.inputs
        if inputs.embed is not None:
            return self._float(inputs.embed.weight), NO_MATRIX
        return None, self._matrix(inputs.project.weight, inputs.project.bias, "float32")

    def _layer(self, block: Block) -> bytes:
        mixer, norms = block.mixer, []
        for norm in (block.norm1, block.norm2):
            norms += [address(self._float(getattr(norm, name, None))) for name in ("weight", "bias")]
        kind, sizes, filters, maps, matrices = self._mixer(mixer)
        mlp, hidden, up, down = self._mlp(block.mlp)
        scale = mixer.key_dim**-0.5 if isinstance(mixer, Attention) else 0.0
        eps = mixer.eps if isinstance(mixer, LinearAttention) else 0.0
        numbers = (MIXERS[kind], *sizes, mlp, hidden)
        return LAYER.pack(*numbers, *norms, *filters, eps, scale, *maps[0], *maps[1], *matrices, *up, *down)

    def _mixer(self, mixer: nn.Module) -> Any:
        """Kind, its eleven sizes, filters, two maps, two matrices."""
        if isinstance(mixer, Attention):
            return self._attention(mixer)
        if not isinstance(mixer, (BaseConv, GatedConv)):
            raise BackendError(
                f"the native decoder does not know the mixer {type(mixer).__name__}; use backend 'torch'"
            )
        taps = mixer.kernel_size
        filters = [address(self._float(x)) for x in (mixer.weight.T.flip(0), mixer.bias)]
        sizes = (0, 0, 0, 0, 0, 0, taps, mixer.width, 0, self._state((taps - 1) * mixer.width), 0)
        if isinstance(mixer, BaseConv):
            return "conv", sizes, filters, (NO_MAP, NO_MAP), (*self._linear(mixer.gate), *NO_MATRIX)
        return "gated_conv", sizes, filters, (NO_MAP, NO_MAP), (*self._linear(mixer.proj), *self._linear(mixer.out))

    def _attention(self, mixer: Attention) -> Any:
        kv, D, V, F, window, cache = mixer.n_kv_heads, mixer.key_dim, mixer.head_dim, 0, 0, 0
        maps: list[tuple[Any, ...]] = [NO_MAP, NO_MAP]
        if isinstance(mixer, LinearAttention):
            kind, F = "linear", mixer.feature_map.feature_dim
            for i, side in enumerate("qk"):
                maps[i], tensors = packed_map(mixer.feature_map, side)
                self._kept += tensors
            room = kv * F * (V + 1) * (1 + self.exact)  # the sums, and their rounding errors
        elif isinstance(mixer, WindowAttention):
            kind, window = "window", mixer.window
            room = kv * rounded(window) * (D + V)
        elif isinstance(mixer, SoftmaxAttention):
            kind, room, cache = "softmax", 0, self.caches
            self.caches += 1
        else:
            raise BackendError(
                f"the native decoder does not know the mixer {type(mixer).__name__}; use backend 'torch'"
            )
        sizes = (mixer.n_heads, kv, D, V, F, window, 0, 0, self.exact, self._state(room), cache)
        return kind, sizes, (0, 0), maps, (*self._linear(mixer.qkv), *self._linear(mixer.out))

    def _mlp(self, mlp: nn.Module | None) -> Any:
        """Kind, hidden width, two matrices."""
        if not isinstance(mlp, MLP):
            return MLPS["none" if mlp is None else "identity"], 0, NO_MATRIX, NO_MATRIX
        weight: Tensor = mlp.up.weight
        bias: Tensor | None = mlp.up.bias
        if mlp.kind == "swiglu":
            weight, bias = _alternating(weight), None if bias is None else _alternating(bias)
        hidden = mlp.down.weight.shape[1]
        return MLPS[mlp.kind], hidden, self._matrix(weight, bias), self._linear(mlp.down)

    def _linear(self, linear: nn.Linear) -> tuple[int, ...]:
        return self._matrix(linear.weight, linear.bias)

    def _matrix(self, weight: Tensor, bias: Tensor | None, kind: str | None = None) -> tuple[int, ...]:
        packed: Packed = self._keep(pack(weight, bias, kind or self.weights))
        self.bytes += packed.w.numel()
        return packed.struct()

    def _state(self, floats: int) -> int:
        """The place of a layer in a row of states; layers begin on lines of the cache."""
        start = self.state_floats
        self.offsets.append(start)
        self.state_floats += rounded(floats)
        return start

    def _float(self, x: Tensor | None) -> Tensor | None:
        return None if x is None else self._keep(dense(x.detach()).clone())

    @cached_property
    def rooms(self) -> dict[int, int]:
        """Every address in the structs, and the bytes there: for LINNET_CHECK."""
        parts = [(x.w, x.scale, x.sums, x.bias) if isinstance(x, Packed) else (x,) for x in self._kept]
        return rooms(x for part in parts for x in part if x is not None)

    def _keep(self, x: Any) -> Any:
        self._kept.append(x)
        return x


def check_native(model: StreamModel, weights: str) -> None:
    """BackendError with the reason unless the native decoder can take this model."""
    if weights not in KINDS:
        raise unknown("weights", weights, KINDS)
    if library() is None:
        raise BackendError(f"the native decoder is not there: {reason()}")
    for name, x in model.named_parameters():
        if x.device.type != "cpu":
            raise BackendError(f"the native decoder runs on the cpu, but {name} is on {x.device}; use model.cpu()")
        if x.dtype != torch.float32:
            raise BackendError(f"the native decoder takes float32 models, but {name} is {x.dtype}; use model.float()")


def rounded(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


def _head(model: StreamModel) -> tuple[Tensor, Tensor | None]:
    if isinstance(model, LanguageModel):
        return model.out_weight, None
    if isinstance(model, ImageModel) and model.head is None:
        return model.embed.weight[: model.levels], None
    if isinstance(model, (ImageModel, Forecaster, Classifier)) and model.head is not None:
        return model.head.weight, model.head.bias
    raise BackendError(f"the native decoder does not know a {type(model).__name__}; use backend 'torch'")


def _alternating(x: Tensor) -> Tensor:  # [2 F, ...] gates, then values -> 32 gates, 32 values, 32 gates ...
    gate, value = (nn.functional.pad(part, (0, 0) * (x.ndim - 1) + (0, -len(part) % PANEL)) for part in x.chunk(2))
    return torch.stack((gate.unflatten(0, (-1, PANEL)), value.unflatten(0, (-1, PANEL))), dim=1).flatten(0, 2)


def _waves(width: int, base: float, scaling: Mapping[str, Any] | None = None) -> Tensor:  # [DIGITS,256,width/2,2]
    """cos, sin of every digit of a position in base 256: the turn of any position is the product of a few of them.

    The lowest digit is in every product, so its table alone carries the attention factor of a yarn scaling.
    """
    steps = torch.arange(256, device=CPU) * 256 ** torch.arange(DIGITS, device=CPU)[:, None]
    turn = angles(steps, width, base, scaling)
    waves = torch.stack((turn.cos(), turn.sin()), dim=-1).contiguous()
    waves[0] *= attention_factor(scaling)
    return waves
