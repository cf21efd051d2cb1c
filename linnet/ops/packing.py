"""Packed batches for mixers that know only padded ones: sequences side by side in one row, and rows with a mask.

    rows, mask = unpack(x, cu_seqlens)       x [1,T,...] -> rows [S,L,...], mask [S,L], L the longest of S sequences
    pack(rows, cu_seqlens)                   back to [1,T,...]

A mixer whose padding changes nothing gives the packed answer this way, at the cost of the longest sequence for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .checks import check_cu_seqlens


def unpack(x: Tensor, cu_seqlens: Tensor | Sequence[int], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One sequence to a row, its tokens first; `mask` [1,T] marks padding that was in the packed row."""
    offsets = torch.tensor(check_cu_seqlens(cu_seqlens, x.shape[1], x.shape[0]), device=x.device)
    lengths = offsets.diff()  # [S]
    longest = int(lengths.max())
    real = torch.arange(longest, device=x.device) < lengths[:, None]  # [S,L]
    rows = x.new_zeros(*real.shape, *x.shape[2:])
    rows[real] = x[0]
    if mask is not None:
        real = real.masked_scatter(real, mask[0])
    return rows, real


def pack(rows: Tensor, cu_seqlens: Tensor | Sequence[int]) -> Tensor:  # [S,L,...] -> [1,T,...]
    """The first tokens of every row, as many as `cu_seqlens` says, side by side."""
    offsets = torch.as_tensor(cu_seqlens, device=rows.device)
    real = torch.arange(rows.shape[1], device=rows.device) < offsets.diff()[:, None]
    return rows[real][None]
