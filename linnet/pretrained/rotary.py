"""Reorder the rows of q and k between models that turn part of a head and linnet, which turns pairs (i, i + D/2).

    spread(rows, D, R)     pairs (i, i + R/2) of the first R rows of a head -> (i, i + D/2), for i < R/2
    gather(rows, D, R)     back

A score is a sum over the numbers of a head, so any order serves that is the same for q, k, and the weights of their
norms. D head width, R <= D numbers of it that turn.
"""

from __future__ import annotations

import torch
from torch import Tensor


def spread(rows: Tensor, width: int, turned: int) -> Tensor:
    """Return rows [H D, ...], or the D numbers of a norm, in linnet's order."""
    return rows.unflatten(0, (-1, width))[:, _order(width, turned)].flatten(0, 1)


def gather(rows: Tensor, width: int, turned: int) -> Tensor:
    """Return rows [H D, ...] from linnet's order in that of the published model."""
    return rows.unflatten(0, (-1, width))[:, _order(width, turned).argsort()].flatten(0, 1)


def _order(width: int, turned: int) -> Tensor:  # [D]
    first, second = torch.arange(turned).chunk(2)
    third, fourth = torch.arange(turned, width).chunk(2) if turned < width else (first[:0], first[:0])
    return torch.cat([first, third, second, fourth])
