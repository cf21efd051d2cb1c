"""Backbone: positions, a stack of blocks, a final norm. Every model adds an embedding before it and a head after it.

    h, state = backbone(x, state)          x, h [B,T,E]
    h, state = backbone.step(x, state)     x, h [B,E], the same numbers one token at a time

A variant is a value in the configuration (a mixer, a list of mixers, a norm), never a copy of this file.
Positions count real tokens and are part of the state, so splits, padding and packing change nothing.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from ..layers import Block, CrossAttention, LearnedPositions, SinusoidalPositions, build_mixer, build_mlp, build_norm
from ..layers.mixer import Shared
from ..layers.positions import Rotary, Rotation
from ..ops.checks import check_positions
from ..ops.state import AnyState
from .config import ModelConfig
from .state import ModelState


class StateRelayProtocol(Protocol):
    """Passes states between processes that each hold a part of one sequence: from the previous one, to the next."""

    def offset(self, length: int) -> int: ...

    def receive(self, layer: int, like: AnyState) -> AnyState | None: ...

    def send(self, layer: int, x: Tensor, state: AnyState) -> Tensor: ...


class Backbone(nn.Module):
    """`n_layers`, `causal` and `cross` override the configuration, to build an encoder and a decoder from one."""

    def __init__(
        self, config: ModelConfig, *, n_layers: int | None = None, causal: bool | None = None, cross: str | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.causal = config.causal if causal is None else causal
        layers = config.n_layers if n_layers is None else n_layers
        self.turns = Rotary(config.rotary_base, config.rotary_scaling, config.rotary_fraction)
        names = [config.pattern[i % len(config.pattern)] for i in range(layers)]
        self.blocks = nn.ModuleList(self._block(i, names, cross) for i in range(layers))
        self.positions = _positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.first_norm = build_norm(config.norm, config.d_model, config.norm_eps) if config.embed_norm else None
        last = config.norm_place == "pre"  # post-norm blocks end in a norm already
        self.norm = build_norm(config.norm, config.d_model, config.eps_at(layers)) if last else nn.Identity()
        self.relay: StateRelayProtocol | None = None  # set while one sequence is split over processes

    def _block(self, i: int, names: list[str], cross: str | None) -> Block:
        c, name = self.config, names[i]
        options = c.options_of(name)
        heads: dict[str, Any] = {
            "n_kv_heads": c.n_kv_heads,
            "head_dim": c.head_dim,
            "key_dim": c.key_dim,
            "bias": c.bias if c.attention_bias is None else c.attention_bias,
        }
        turn: dict[str, Any] = {"rotary": c.positions == "rotary", "causal": self.causal}
        turn |= {f"rotary_{name}": value for name, value in self.turns._asdict().items()}
        sizes: dict[str, Any] = {"d_model": c.d_model, "n_heads": c.n_heads, "first": name not in names[:i]}
        mixer = build_mixer(name, options=options, **sizes, **heads, **turn)
        mlp = build_mlp(c.mlp, c.d_model, c.hidden, bias=c.bias if c.mlp_bias is None else c.mlp_bias)
        reader = None
        if cross is not None:
            reader = CrossAttention(c.d_model, c.n_heads, mixer=cross, head_dim=c.head_dim, bias=heads["bias"])
        norms: dict[str, Any] = {"norm": c.norm, "norm_place": c.norm_place, "norm_eps": c.eps_at(i)}
        return Block(mixer, mlp, d_model=c.d_model, cross=reader, dropout=c.dropout, **norms)

    @property
    def layers(self) -> list[Block]:
        """The blocks as a list of `Block`."""
        return cast("list[Block]", list(self.blocks))

    def forward(
        self,
        x: Tensor,
        state: ModelState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        source: tuple[Any, ...] | None = None,
        output_state: bool = True,
        hidden: list[Tensor] | None = None,
    ) -> tuple[Tensor, ModelState | None]:
        """Apply all blocks to x [B,T,E]; with `cu_seqlens`, each packed sequence has a row in the state.

        `source` has a state for the cross attention of each block. `hidden` is a list to which the input of every
        block and, last, the output are appended.
        """
        start = self._start(x, state, cu_seqlens)
        where, end = count(start, x.shape[1], mask, cu_seqlens)
        if state is not None:
            check_positions(start, end)
        end = end if cu_seqlens is not None else end.expand(x.shape[0])
        x = self.dropout(self._add_positions(x, where))
        how: dict[str, Any] = {"mask": mask, "cu_seqlens": cu_seqlens, "shared": {}}
        turns = self._rotations(where, x)
        kept: list[AnyState] = []
        for i, block in enumerate(self.layers):
            given = None if state is None else state.layers[i]
            read = None if source is None else source[i]
            if self.relay is not None:
                given = self.relay.receive(i, self._empty(i, x))
            if hidden is not None:
                hidden.append(x)
            how["positions"] = turns.get(block.mixer.rotary_width)
            x, new = block(x, given, read, output_state=output_state or self.relay is not None, **how)
            if self.relay is not None:
                x = self.relay.send(i, x, new)
            kept.append(new)
        x = self.norm(x)
        if hidden is not None:
            hidden.append(x)
        return x, ModelState(tuple(kept), end) if output_state else None

    def step(
        self,
        x: Tensor,
        state: ModelState | None = None,
        *,
        source: tuple[Any, ...] | None = None,
        hidden: list[Tensor] | None = None,
    ) -> tuple[Tensor, ModelState]:
        """Apply all blocks to the next token of every row, x [B,E]. `source` and `hidden` as in `forward`."""
        position = x.new_zeros(x.shape[0], dtype=torch.long) if state is None else state.position
        if state is not None:
            check_positions(position, position + 1)
        x = self.dropout(self._add_positions(x, position))
        turns = self._rotations(position, x)
        kept = []
        shared: Shared = {}
        for i, block in enumerate(self.layers):
            given = None if state is None else state.layers[i]
            if hidden is not None:
                hidden.append(x)
            turn = turns.get(block.mixer.rotary_width)
            x, new = block.step(x, given, None if source is None else source[i], positions=turn, shared=shared)
            kept.append(new)
        x = self.norm(x)
        if hidden is not None:
            hidden.append(x)
        return x, ModelState(tuple(kept), position + 1)

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes of state per sequence after `length` tokens."""
        return sum(block.mixer.state_bytes(length, dtype) for block in self.layers)

    def empty_state(self, batch: int, *, device: Any = None, dtype: torch.dtype | None = None) -> ModelState:
        """Return the state before the first token: equivalent to None, but with shapes."""
        layers = tuple(block.mixer.empty_state(batch, device=device, dtype=dtype) for block in self.layers)
        return ModelState(layers, torch.zeros(batch, dtype=torch.long, device=device))

    def _empty(self, layer: int, x: Tensor) -> AnyState:
        return self.layers[layer].mixer.empty_state(x.shape[0], device=x.device, dtype=x.dtype)

    def _start(self, x: Tensor, state: ModelState | None, cu_seqlens: Tensor | None) -> Tensor:
        """Return the first position of each row: [B] from a state, else [1], or [S] for S packed sequences."""
        if state is not None:
            return state.position
        rows = 1 if cu_seqlens is None else len(cu_seqlens) - 1
        offset = 0 if self.relay is None else self.relay.offset(x.shape[1])
        return torch.full((rows,), offset, dtype=torch.long, device=x.device)

    def _rotations(self, where: Tensor, x: Tensor) -> dict[int, Rotation]:
        """Return sines and cosines by the width of a head, once for all layers: they cost more than the rotation."""
        widths = {block.mixer.rotary_width for block in self.layers} - {0}
        return {width: self.turns.at(where, width, x.dtype) for width in widths}

    def _add_positions(self, x: Tensor, where: Tensor) -> Tensor:
        x = x if self.first_norm is None else self.first_norm(x)
        return x if self.positions is None else x + self.positions(where, x.dtype)


def _positions(config: ModelConfig) -> nn.Module | None:
    if config.positions == "learned":
        return LearnedPositions(config.max_length, config.d_model)
    gain = 2**0.5 * config.init_std  # a sine of this amplitude has the standard deviation of the embedding
    return SinusoidalPositions(config.d_model, gain=gain) if config.positions == "sinusoidal" else None


def count(start: Tensor, length: int, mask: Tensor | None, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the positions of all tokens [B,T] and of the next one [B]; [1,T] and [1] if all rows share one start."""
    if cu_seqlens is not None:
        edges = torch.as_tensor(cu_seqlens, dtype=torch.long, device=start.device)
        lengths = edges.diff()  # [S]
        real = torch.ones(1, length, dtype=torch.bool, device=start.device) if mask is None else mask
        seen = nn.functional.pad(real[0].long().cumsum(0), (1, 0))  # [T+1]: real tokens before each
        where = seen[1:] - 1 + torch.repeat_interleave(start - seen[edges[:-1]], lengths)
        return where.clamp(min=0)[None], start + seen[edges[1:]] - seen[edges[:-1]]
    if mask is None:
        return start[:, None] + torch.arange(length, device=start.device), start + length
    seen = mask.long().cumsum(1)  # [B,T]
    return (start[:, None] + seen - 1).clamp(min=0), start + mask.sum(1)
