"""Short convolution: each channel mixes its last K inputs; the state is the K - 1 that the next token needs.

    y_t = bias + sum_{i<K} w_i x_{t-K+1+i},   x = 0 before the start

One causal filter per channel. Padding, anywhere in a row, counts as absent: filters span real tokens only.
Time and memory are O(T E), and nothing is copied unless there is a state, a mask or packing.
B batch, T time, E channels, K taps, W = K - 1, R sequences:  x, y [B,T,E]   weight [E,K]   bias [E]   state [R,W,E].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...errors import StateError
from ..checks import COUNTS, check_cu_seqlens, check_form, check_inputs, check_mask, shape, widened
from ..dispatch import check_names, check_torch
from ..precision import widest
from ..state import ConvState
from .causal_conv import causal_conv


def short_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    initial_state: ConvState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
) -> tuple[Tensor, ConvState | None]:
    """Convolve every channel with its filter, causally.

    Args:
        x, weight, bias: [B,T,E], [E,K] with the newest tap last, [E] or None.
        initial_state: ConvState, the last K - 1 real inputs, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes nothing, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto" or "parallel", the only one.
        backend: "auto", "native" or "torch".

    Returns:
        y [B,T,E] in the dtype of x, and the state, also in the dtype of x, or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.
    """
    _check(x, weight, bias, ("batch", "time", "channels"))
    check_mask(mask, x.shape[0], x.shape[1], x.device)
    lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)  # [R]
    if cu_seqlens is not None:
        lengths = torch.tensor(check_cu_seqlens(cu_seqlens, x.shape[1], x.shape[0]), device=x.device).diff()
    if initial_state is not None:
        initial_state = widened(initial_state, ConvState, x.dtype)
        _check_state(initial_state, x, weight, rows=len(lengths))
    check_names("short_conv", form, backend)
    if mask is not None or cu_seqlens is not None:
        return _in_one_row(x, weight, bias, initial_state, output_final_state, mask, lengths, backend)
    past = weight.shape[1] - 1
    seen = x if initial_state is None else torch.cat([initial_state.x, x], dim=1)  # [B,W+T,E] or [B,T,E]
    y = _convolve(seen, weight, bias, backend)[:, seen.shape[1] - x.shape[1] :]
    if not output_final_state:
        return y, None
    newest = seen[:, max(seen.shape[1] - past, 0) :]
    return y, ConvState(pad(newest, (0, 0, past - newest.shape[1], 0)))  # pad copies: no memory shared with x


def short_conv_step(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, state: ConvState | None = None, *, backend: str = "auto"
) -> tuple[Tensor, ConvState]:
    """Process one token: x [B,E] -> y [B,E] and the last K - 1 inputs, this one included."""
    _check(x, weight, bias, ("batch", "channels"))
    if state is None:
        state = empty_state(x.shape[0], weight.shape[0], weight.shape[1], x.device, x.dtype)
    state = widened(state, ConvState, x.dtype)
    _check_state(state, x, weight, rows=x.shape[0])
    check_torch("short_conv", backend)
    seen = torch.cat([state.x, x[:, None]], dim=1)  # [B,K,E]
    wide = widest(x, weight, bias)
    y = (seen.to(wide) * weight.to(wide).t()).sum(1)
    return (y if bias is None else y + bias.to(wide)).to(x.dtype), ConvState(seen[:, 1:])


def state_bytes(length: int, *, width: int, kernel_size: int, dtype: torch.dtype = torch.float32) -> int:
    """Return bytes of state per sequence: (K - 1) E numbers for any length."""
    return (kernel_size - 1) * width * dtype.itemsize


def empty_state(
    batch: int, width: int, kernel_size: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> ConvState:
    """Return the state before the first token: zeros."""
    return ConvState(torch.zeros(batch, kernel_size - 1, width, device=device, dtype=dtype))


def _in_one_row(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: ConvState | None,
    need_state: bool,
    mask: Tensor | None,
    lengths: Tensor,
    backend: str,
) -> tuple[Tensor, ConvState | None]:
    """Convolve all real tokens as one long row, W places of history before each sequence: past | tokens | past | ..."""
    past, rows, width = weight.shape[1] - 1, len(lengths), x.shape[2]
    tokens = x.flatten(0, 1)  # [B T,E]
    owner = torch.arange(rows, device=x.device).repeat_interleave(lengths)  # [B T]
    real = torch.arange(len(tokens), device=x.device) if mask is None else mask.flatten().nonzero()[:, 0]
    owner = owner[real]  # [N]
    place = torch.arange(len(real), device=x.device) + past * (owner + 1)  # [N]: the place of each real token
    row = x.new_zeros(len(real) + rows * past, width).index_copy(0, place, tokens.index_select(0, real))
    counts = torch.bincount(owner, minlength=rows)  # [R]
    ends = counts.cumsum(0) + past * torch.arange(1, rows + 1, device=x.device)  # [R]: one after the last token
    back = torch.arange(-past, 0, device=x.device)  # [W]
    if state is not None:
        row = row.index_copy(0, ((ends - counts)[:, None] + back).flatten(), state.x.flatten(0, 1))
    y = _convolve(row[None], weight, bias, backend)[0].index_select(0, place)
    y = y.new_zeros(tokens.shape).index_copy(0, real, y).view(x.shape)
    newest = row.index_select(0, (ends[:, None] + back).flatten()) if need_state else None
    return y, None if newest is None else ConvState(newest.view(rows, past, width))


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, backend: str) -> Tensor:
    """Convolve in the widest dtype; every token is real, and zeros precede the first."""
    wide = widest(x, weight, bias)
    bias = None if bias is None else bias.to(wide)
    return causal_conv(x.to(wide), weight.to(wide), bias, backend).to(x.dtype)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, axes: tuple[str, ...]) -> None:
    check_inputs(x=x, weight=weight, bias=bias)
    if x.ndim != len(axes):
        raise ValueError(f"x has shape {shape(x)}; accepted: {COUNTS[len(axes)]} [{', '.join(axes)}]")
    width = x.shape[-1]
    if weight.ndim != 2 or weight.shape[0] != width or weight.shape[1] < 1:
        got = f"weight has shape {shape(weight)} for x {shape(x)}"
        raise ValueError(f"{got}; accepted: [channels, taps] = [{width}, 1 or more]")
    if bias is not None and bias.shape != (width,):
        raise ValueError(f"bias has shape {shape(bias)}; accepted: [channels] = [{width}], or None")


def _check_state(state: ConvState, x: Tensor, weight: Tensor, rows: int) -> None:
    check_form(state, ConvState)
    wanted = [rows, weight.shape[1] - 1, x.shape[-1]]
    if list(state.x.shape) != wanted:
        raise StateError(
            f"initial_state.x has shape {shape(state.x)}; accepted here: [rows, taps - 1, channels] = {wanted}"
        )
    if state.x.dtype != x.dtype or state.x.device != x.device:
        raise StateError(
            f"initial_state.x is {state.x.dtype} on {state.x.device} but x is {x.dtype} on {x.device}; "
            f"use state.to({str(x.device)!r}, {x.dtype})"
        )
