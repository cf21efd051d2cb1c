"""Short convolutions as mixers: they see which token directly precedes which.

    BaseConv     y = conv(x) * (W x + b) + x                              Arora et al. 2023, "Zoology", arXiv:2312.04927
    GatedConv    y = W_out( silu(conv(u1)) * u2 ),   u1, u2 = W_in x      Arora et al. 2024, "Based", arXiv:2402.18668
    Shift        y_t = x_{t-1} * (W x_t + b) + x_t                        BaseConv with a fixed filter

All look back only, in bidirectional models too: `causal` is always True. Their state is the last K - 1 inputs of the
convolution. B batch, T time, E model width, N channels of the convolution, K taps:  weight [N,K]   bias [N]
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from ..errors import ArgumentError, is_whole, whole
from ..ops.checks import check_form
from ..ops.conv.base_conv import base_conv
from ..ops.conv.short_conv import empty_state, short_conv, short_conv_step, state_bytes
from ..ops.state import AnyState, ConvState
from .mixer import Mixer
from .positions import Rotation


class _Conv(Mixer):
    """The filters and the state; a subclass defines the input of the convolution and the use of its output."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        whole("kernel_size", kernel_size, 1, hint="it is the number of tokens a filter spans")
        self.width, self.kernel_size = width, kernel_size
        bound = kernel_size**-0.5  # as torch.nn.Conv1d begins
        self.weight = nn.Parameter(torch.empty(width, kernel_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

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
        u, rest = self.split(x)
        y, new = short_conv(
            u,
            self.weight,
            self.bias,
            initial_state=as_kept(state, u),
            output_final_state=output_state,
            mask=mask,
            cu_seqlens=cu_seqlens,
        )
        return self.join(y, rest), new

    def step(
        self, x: Tensor, state: AnyState | None = None, *, positions: Tensor | Rotation | None = None
    ) -> tuple[Tensor, ConvState]:
        u, rest = self.split(x)
        y, new = short_conv_step(u, self.weight, self.bias, as_kept(state, u))
        return self.join(y, rest), new

    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> ConvState:
        return empty_state(batch, self.width, self.kernel_size, device, dtype)

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        return state_bytes(length, width=self.width, kernel_size=self.kernel_size, dtype=dtype)

    @abstractmethod
    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[...,E] -> the input of the convolution [...,N], and the rest that `join` needs."""

    @abstractmethod
    def join(self, y: Tensor, rest: Tensor) -> Tensor:
        """Combine the output of the convolution [...,N] with the rest -> [...,E]"""


class BaseConv(_Conv):
    """The first layer of the MQAR models: a gate without a nonlinearity; "+ x" adds to the residual of the block."""

    def __init__(self, d_model: int, kernel_size: int = 3) -> None:
        super().__init__(d_model, kernel_size)
        self.gate = nn.Linear(d_model, d_model)

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
        if state is None and mask is None and cu_seqlens is None and not output_state:
            return base_conv(x, self.weight, self.bias, self.gate.weight, self.gate.bias), None
        return super().forward(x, state, mask=mask, cu_seqlens=cu_seqlens, output_state=output_state)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    def join(self, y: Tensor, rest: Tensor) -> Tensor:
        return torch.addcmul(rest, y, self.gate(rest))


class GatedConv(_Conv):
    """The mixer between the attention layers of Based: `expand` is the width of u1 and u2 together, in model widths."""

    def __init__(self, d_model: int, expand: int = 4, kernel_size: int = 3, *, bias: bool = True) -> None:
        if not is_whole(expand, 1) or expand * d_model % 2:
            accepted = f"a whole number, 1 or more, with expand * d_model even at d_model {d_model}"
            raise ArgumentError("expand", expand, accepted)
        super().__init__(expand * d_model // 2, kernel_size)
        self.proj = nn.Linear(d_model, 2 * self.width, bias=bias)
        self.out = nn.Linear(self.width, d_model, bias=bias)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u1, u2 = self.proj(x).chunk(2, dim=-1)
        return u1, u2

    def join(self, y: Tensor, rest: Tensor) -> Tensor:
        return self.out(silu(y) * rest)


class Shift(BaseConv):
    """BaseConv with a fixed filter that selects the previous token: what recall needs from a first layer."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 2)
        del self.weight, self.bias
        self.register_buffer("weight", torch.tensor([1.0, 0.0]).repeat(d_model, 1))
        self.register_buffer("bias", torch.zeros(d_model))


def as_kept(state: AnyState | None, u: Tensor) -> ConvState | None:
    """Return the state in the dtype of the new inputs, which autocast may have made narrower than an empty state."""
    if state is None:
        return None
    check_form(state, ConvState)
    assert isinstance(state, ConvState)
    return state.to(dtype=u.dtype)
