"""One decoding step in plain torch, as one would write it by hand, without linnet's kernels.

    linear    phi(k) v^T is added to the state in place, phi = elu + 1         s [B,H,D,V]  z [B,H,D]
    softmax   k and v go into a preallocated cache; sdpa over its filled part   k, v [B,H,context,D]

The two differ only in that, and both are tuned alike: one product for q, k and v, additions and relu in place, weights
in the layout that is faster for the batch. The softmax model's own step copies its cache at every token (a state is a
value); this one does not, which makes it the fair competitor.
The network is that of the presets mnist and cifar10: norms after the branches, relu, sinusoidal positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import elu_, layer_norm, linear, scaled_dot_product_attention

from ...layers.positions import BASE, SinusoidalPositions
from ...models import ImageModel

EPS = 1e-6  # of linear_attention


class Matrix(NamedTuple):
    weight: Tensor  # [out,in]
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def matrix(layer: nn.Linear, batch: int) -> Matrix:
    """Return the weights of a layer; for two or more rows, torch is faster if they are transposed in memory."""
    weight = layer.weight.detach()
    return Matrix(weight if batch == 1 else weight.t().contiguous().t(), layer.bias)


def matrices(model: nn.Module) -> list[nn.Linear]:
    """Return the matrices that a step reads, in order: packed q, k, v, output, MLP up and down per block; the head."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


class TorchStep(ABC):
    """`batch` streams at one position; subclasses implement `attend`."""

    def __init__(self, model: ImageModel, batch: int) -> None:
        c = model.config
        if (c.norm_place, c.norm, c.mlp, c.positions) != ("post", "layer", "relu", "sinusoidal") or model.head is None:
            raise ValueError(
                "this model has another architecture; accepted: the presets mnist and cifar10, at any size"
            )
        self.model, self.batch, self.heads = model.eval(), batch, c.n_heads
        self.position, self.advance = 0, 1
        self.head = matrix(model.head, batch)
        self.layers = [[matrix(one, batch) for one in matrices(block)] for block in model.backbone.layers]
        self.norms: list[tuple[Any, Any]] = [(block.norm1, block.norm2) for block in model.backbone.layers]
        even = torch.arange(0, c.d_model, 2, dtype=torch.float64)
        self.rates = BASE ** (-even / c.d_model)  # [E/2]
        assert isinstance(model.backbone.positions, SinusoidalPositions)
        self.gain = float(model.backbone.positions.gain.detach())

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:  # [B] -> [B,P]
        turn = self.rates * self.position
        wave = torch.stack((turn.sin(), turn.cos()), dim=-1).flatten().float().mul_(self.gain)  # [E]
        x = self.model.embed.weight[tokens].add_(wave)
        for i, (qkv, out, up, down) in enumerate(self.layers):
            packed = qkv(x).view(self.batch, 3, self.heads, -1)
            x = _normed(out(self.attend(i, packed).reshape(self.batch, -1)).add_(x), self.norms[i][0])
            x = _normed(down(up(x).relu_()).add_(x), self.norms[i][1])
        self.position += self.advance
        return self.head(x)

    @abstractmethod
    def attend(self, layer: int, packed: Tensor) -> Tensor:
        """Attend with packed q, k, v: [B,3,H,D] -> [B,H,D]."""


class LinearStep(TorchStep):
    """Linear attention with its state updated in place."""

    def __init__(self, model: ImageModel, batch: int) -> None:
        super().__init__(model, batch)
        D = model.config.d_model // self.heads
        self.states = [(torch.zeros(batch, self.heads, D, D), torch.zeros(batch, self.heads, D)) for _ in self.layers]

    def attend(self, layer: int, packed: Tensor) -> Tensor:
        s, z = self.states[layer]
        elu_(packed[:, :2]).add_(1)
        q, k, v = packed.unbind(1)  # [B,H,D]
        s.addcmul_(k[..., None], v[..., None, :])
        z.add_(k)
        den = (q * z).sum(-1, keepdim=True).add_(EPS)
        return torch.matmul(q[:, :, None], s)[:, :, 0].div_(den)


class SoftmaxStep(TorchStep):
    """Softmax attention over a cache with room for `context` tokens."""

    def __init__(self, model: ImageModel, batch: int, context: int) -> None:
        super().__init__(model, batch)
        shape = (batch, self.heads, context, model.config.d_model // self.heads)
        self.caches = [(torch.empty(shape), torch.empty(shape)) for _ in self.layers]

    def attend(self, layer: int, packed: Tensor) -> Tensor:
        q, k, v = packed.unbind(1)  # [B,H,D]
        keys, values = self.caches[layer]
        keys[:, :, self.position], values[:, :, self.position] = k, v
        end = self.position + 1
        return scaled_dot_product_attention(q[:, :, None], keys[:, :, :end], values[:, :, :end])[:, :, 0]

    def fill(self, length: int) -> None:
        """Fill the cache with random numbers, which do not affect the time, then hold at `length`."""
        first = self.caches[0][0].normal_()
        for cache in [x for pair in self.caches for x in pair][1:]:
            cache.copy_(first)
        self.hold(length)

    def hold(self, length: int) -> None:
        """Make every later step see exactly `length` tokens: its own replaces the last."""
        self.position, self.advance = length - 1, 0

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the keys and values that the next step sees."""
        filled = (self.position + 1) * self.batch
        return sum(filled * x[0, :, 0].numel() * x.element_size() for pair in self.caches for x in pair)


def cache_bytes(model: ImageModel, batch: int, context: int) -> float:
    """Return the bytes that the caches will take."""
    return 2.0 * 4 * batch * context * model.config.d_model * model.config.n_layers


def _normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
