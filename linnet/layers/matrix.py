"""MatrixMixer: a mixer whose state is one matrix per head, updated at every token by the op of the subclass.

    S_t = rule(S_{t-1}, token t),   out_t = S_t^T q_t            state: MatrixState(s [B,H,F,V], x [B,W,E'])

A subclass gives its sizes and defines `mix`, which takes any number of tokens; packing, `step` and the size of the
state are here. x holds the last W inputs of its short convolution or token shift, oldest first; W may be 0.
B batch, T time, E model width, H heads, F and V height and width of the matrix.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, is_whole
from ..ops.checks import check_form, widened
from ..ops.packing import pack, unpack
from ..ops.state import AnyState, MatrixState
from .mixer import Mixer, Shared
from .positions import Rotary, Rotation


class MatrixMixer(Mixer):
    """Base of the decayed, gated, delta, Mamba and RWKV mixers.

    Built as cls(d_model, n_heads, ...) with the keywords n_kv_heads, head_dim, key_dim, causal and bias of every
    attention layer, and its own options. `form` is "auto" unless a test sets another.
    """

    form: str = "auto"
    turns = Rotary()

    def __init__(self, matrix: tuple[int, int, int], inputs: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.matrix, self.inputs = matrix, inputs  # (H, F, V) and (W, E') of the state

    @abstractmethod
    def mix(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, MatrixState]:
        """x [B,T,E] -> [B,T,E] and the state after it; where mask [B,T] is False the state stays as it is.

        A mixer with a `rotary_width` also gets `turn`, a Rotation; one that `shares`, also `shared`.
        """

    def forward(
        self,
        x: Tensor,
        state: AnyState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        positions: Tensor | Rotation | None = None,
        output_state: bool = False,
        shared: Shared | None = None,
    ) -> tuple[Tensor, MatrixState | None]:
        more: dict[str, Any] = {"shared": shared} if self.shares else {}
        if cu_seqlens is not None:
            rows, real = unpack(x, cu_seqlens, mask)
            if self.rotary_width:
                more["turn"] = self.turns.of(rows, _unpacked(positions, cu_seqlens), self.rotary_width)
            y, new = self._mixed(rows, state, real, more)
            return pack(y, cu_seqlens), new if output_state else None
        if self.rotary_width:
            more["turn"] = self.turns.of(x, positions, self.rotary_width)
        y, new = self._mixed(x, state, mask, more)
        return y, new if output_state else None

    def step(
        self,
        x: Tensor,
        state: AnyState | None = None,
        *,
        positions: Tensor | Rotation | None = None,
        shared: Shared | None = None,
    ) -> tuple[Tensor, MatrixState]:
        more: dict[str, Any] = {"shared": shared} if self.shares else {}
        if self.rotary_width:
            more["turn"] = self.turns.of(x, positions, self.rotary_width)
        y, new = self._mixed(x[:, None], state, None, more)
        return y[:, 0], new

    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> MatrixState:
        wide = dtype if dtype == torch.float64 else torch.float32
        s = torch.zeros(batch, *self.matrix, device=device, dtype=wide)
        return MatrixState(s, s.new_zeros(batch, *self.inputs))

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        (heads, height, width), (kept, channels) = self.matrix, self.inputs
        return (heads * height * width + kept * channels) * max(dtype.itemsize, torch.float32.itemsize)

    def how(self, state: MatrixState, mask: Tensor | None) -> dict[str, Any]:
        """Return the keywords for an op of ops/gated: its state is the matrix, without the inputs of the layer."""
        return {"initial_state": MatrixState(state.s), "output_final_state": True, "mask": mask, "form": self.form}

    def _mixed(
        self, x: Tensor, state: AnyState | None, mask: Tensor | None, more: dict[str, Any]
    ) -> tuple[Tensor, MatrixState]:
        if state is None:
            state = self.empty_state(x.shape[0], device=x.device, dtype=x.dtype)
        state = widened(state, MatrixState)
        check_form(state, MatrixState)
        assert isinstance(state, MatrixState)
        y, new = self.mix(x, state, mask, **more)
        return y, MatrixState(new.s, new.x.to(new.s.dtype))


def _unpacked(positions: Tensor | Rotation | None, cu_seqlens: Tensor) -> Tensor | Rotation | None:
    """Return positions [1,T], or the rotation at them, with one sequence in each row."""
    if isinstance(positions, Rotation):
        return Rotation(*(unpack(x, cu_seqlens)[0] for x in positions))
    return None if positions is None else unpack(positions, cu_seqlens)[0]


def only_causal(name: str, causal: bool, n_heads: int, n_kv_heads: int | None) -> None:
    """Raise for options that a causal recurrence does not have."""
    if not causal:
        raise ValueError(f"mixer {name!r} looks back only, but causal is False; use 'softmax', 'lsh' or a linear mixer")
    if n_kv_heads not in (None, n_heads):
        raise ValueError(f"mixer {name!r} has as many key-value heads as heads, {n_heads}; n_kv_heads is {n_kv_heads}")


def divided(n_heads: int, name: str, count: int | None) -> int:
    """Return the number of key heads for `n_heads` value heads: `count`, a divisor, or `n_heads` when it is None."""
    if count is None:
        return n_heads
    if not is_whole(count, 1) or n_heads % count:
        raise ArgumentError(name, count, f"a divisor of n_heads, {n_heads}")
    return count


def expand_groups(x: Tensor, heads: int) -> Tensor:
    """[B,T,G,D] -> [B,T,heads,D]: each of the G heads repeated heads / G times."""
    groups = x.shape[2]
    if groups == 1:
        return x.expand(-1, -1, heads, -1)
    return x if groups == heads else x.repeat_interleave(heads // groups, dim=2)
