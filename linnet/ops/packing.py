"""Packed batches for ops that take padded ones: sequences end to end in one row, or one sequence per row with a mask.

    rows, mask = unpack(x, cu_seqlens)       x [1,T,...] -> rows [S,L,...], mask [S,L], L the longest of S sequences
    pack(rows, cu_seqlens)                   back to [1,T,...]

An op whose padding changes nothing gives the packed result this way, at the cost of the longest sequence for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .checks import check_cu_seqlens


def unpack(x: Tensor, cu_seqlens: Tensor | Sequence[int], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return one sequence per row, its tokens first; `mask` [1,T] marks padding inside the packed row."""
    places = token_places(check_cu_seqlens(cu_seqlens, x.shape[1], x.shape[0]), x.device)
    return to_rows(x, places), real_places(places, mask)


def pack(rows: Tensor, cu_seqlens: Tensor | Sequence[int]) -> Tensor:  # [S,L,...] -> [1,T,...]
    """Return the first tokens of every row, as many as `cu_seqlens` says, end to end."""
    offsets = torch.as_tensor(cu_seqlens, device=rows.device)
    return from_rows(rows, torch.arange(rows.shape[1], device=rows.device) < offsets.diff()[:, None])


def token_places(offsets: list[int], device: torch.device) -> Tensor:  # [S,L] bool
    """Return True where a row of the unpacked batch holds a token of its sequence."""
    lengths = torch.tensor(offsets, device=device).diff()  # [S]
    return torch.arange(int(lengths.max()), device=device) < lengths[:, None]


def real_places(places: Tensor, mask: Tensor | None) -> Tensor:  # [S,L] bool
    """Return the mask of the unpacked batch: token places, without the padding that `mask` [1,T] marks."""
    return places if mask is None else places.masked_scatter(places, mask[0])


def to_rows(x: Tensor, places: Tensor) -> Tensor:  # [1,T,...] -> [S,L,...]
    rows = x.new_zeros(*places.shape, *x.shape[2:])
    rows[places] = x[0]
    return rows


def from_rows(rows: Tensor, places: Tensor) -> Tensor:  # [S,L,...] -> [1,T,...]
    return rows[places][None]
