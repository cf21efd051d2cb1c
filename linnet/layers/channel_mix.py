"""ChannelMix: the second half of an RWKV block, an MLP that also sees the token before, as a separate mixer.

    y = W_v relu(W_k x^k)^2                     RWKV-7                        Peng et al. 2025, arXiv:2503.14456
    y = sigmoid(W_r x^r) * W_v relu(W_k x^k)^2  RWKV-4 (`gate`)               Peng et al. 2023, arXiv:2305.13048
    x^m_t = x_t + m * (x_{t-1} - x_t)           token shift, m in [0,1]^E

It looks one token back and so has a state, which is why it is a mixer and not a kind of `mlp` (decision 0045): an RWKV
model of L layers is mixer=("rwkv7", "channel_mix"), mlp="none", n_layers=2 L. It looks back in bidirectional models
too. State: x [B,1,E], the previous token. B batch, T time, E model width, F = `hidden`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, whole
from ..ops.conv.short_conv import empty_state, short_conv, state_bytes
from ..ops.state import AnyState, ConvState
from .mixer import Mixer
from .positions import Rotation
from .short_conv import as_kept


class ChannelMix(Mixer):
    """`hidden`: width between the two matrices, 4 d_model unless given; `bias`: of all matrices."""

    def __init__(self, d_model: int, *, hidden: int | None = None, gate: bool = False, bias: bool = False) -> None:
        super().__init__()
        for name, value in (("gate", gate), ("bias", bias)):
            if not isinstance(value, bool):
                raise ArgumentError(name, value, "true or false")
        hidden = 4 * d_model if hidden is None else whole("hidden", hidden, 1)
        self.width = d_model
        place = torch.arange(d_model) / d_model
        self.shift_k = nn.Parameter(1 - place)
        self.shift_r = nn.Parameter(1 - place) if gate else None
        self.k = nn.Linear(d_model, hidden, bias=bias)
        self.r = nn.Linear(d_model, d_model, bias=bias) if gate else None
        self.out = nn.Linear(hidden, d_model, bias=bias)

    def forward(
        self,
        x: Tensor,
        state: AnyState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        positions: Tensor | Rotation | None = None,
        output_state: bool = False,
    ) -> tuple[Tensor, ConvState | None]:
        one_ago = x.new_tensor([1.0, 0.0]).expand(self.width, 2)  # the filter that selects the previous token
        how: dict[str, Any] = {"output_final_state": output_state, "mask": mask, "cu_seqlens": cu_seqlens}
        before, new = short_conv(x, one_ago, initial_state=as_kept(state, x), **how)
        return self.mixed(x, before), new

    def step(
        self, x: Tensor, state: AnyState | None = None, *, positions: Tensor | Rotation | None = None
    ) -> tuple[Tensor, ConvState]:
        kept = as_kept(state, x) or self.empty_state(x.shape[0], device=x.device, dtype=x.dtype)
        return self.mixed(x, kept.x[:, 0]), ConvState(x[:, None])

    def mixed(self, x: Tensor, before: Tensor) -> Tensor:  # [...,E] -> [...,E]
        """Return the output for tokens x and those before them."""
        change = before - x
        y = self.out(self.k(x + self.shift_k * change).relu().square())
        if self.r is None or self.shift_r is None:
            return y
        return self.r(x + self.shift_r * change).sigmoid() * y

    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> ConvState:
        return empty_state(batch, self.width, 2, device, dtype)

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        return state_bytes(length, width=self.width, kernel_size=2, dtype=dtype)
