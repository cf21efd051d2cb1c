"""Causality for NaN and infinity: a later token never changes an earlier output, even if it is not finite.

    out_t = sum_j A_tj v_j with A_tj = 0 for j > t:   0 times NaN is NaN, so a plain product carries it back in time

A form that multiplies whole chunks runs a second time with zeros in place of non-finite numbers. Outputs before such a
number come from that run, with the bits that any finite number in its place would give; those after it come from the
first run. For finite inputs the cost is one sum each. None of this happens where values cannot be read: in a graph that
torch.compile, functorch or torch.export records, and on devices other than the CPU, where reading means waiting.
Gradients are not guarded: 0 times NaN counts there, and a call with a non-finite number may have no finite gradient.
LINNET_CHECK=values has the ops refuse such numbers where nothing guards against them (`refuse_unguarded`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..native import gate
from .checks import NARROW
from .native_allowed import readable, recorded, wants_graph


def guarded(
    run: Callable[..., Any], given: Sequence[Tensor | None], columns: int, whole: tuple[int, ...] = (), axis: int = 1,
    mask: Tensor | None = None,
) -> Any:  # fmt: skip
    """Return run(*given) = (out, ...), with every output before a non-finite number as if that number were finite.

    given[columns] are the values, each of which reaches one column of `out`; given[i], i in `whole`, reach all columns.
    `out` has the newest tokens, all or some. `axis` is time; `mask` [B,T] marks the real tokens (None: all of them, or
    padding is zeros already).
    """
    watched = [x for i in (columns, *whole) if (x := given[i]) is not None]
    if watched[0].shape[axis] < 2 or not readable(*watched) or all(map(_finite, watched)):
        return run(*given)
    reached = _reached(watched, axis, mask)
    if reached is None:
        return run(*given)
    clean = [_zeroed(x) if x is not None and i in (columns, *whole) else x for i, x in enumerate(given)]
    (out, *rest), (past, *_) = run(*given), run(*clean)
    newest = out.shape[axis]  # keys and values of earlier calls may precede those of the queries
    return torch.where(reached.narrow(axis, reached.shape[axis] - newest, newest), out, past), *rest


def refuse_unguarded(op: str, inputs: Sequence[Tensor | None], mask: Tensor | None) -> None:
    """With LINNET_CHECK=values, raise ArgumentError for a non-finite number in a real token of inputs [B,T,...].

    Only where such a number can reach the past: in calls with gradients and on devices other than the CPU. A graph that
    torch.compile records gets an assertion instead; other transforms are left alone.
    """
    given, compiling = [x for x in inputs if x is not None], torch.compiler.is_compiling()
    if not gate.VALUES or not (compiling or wants_graph(*given) or any(not x.is_cpu for x in given)):
        return
    if not compiling and (torch._C._are_functorch_transforms_active() or recorded() or any(x.is_meta for x in given)):
        return
    for x in given:
        fine = x.detach().isfinite().flatten(2).all(-1)  # [B,T]
        fine = fine if mask is None else fine | ~mask
        if compiling:
            torch._assert_async(
                fine.all(), f"an input of {op} is not finite; accepted with LINNET_CHECK=values: finite"
            )
        elif not bool(fine.all()):
            accepted = "finite numbers in real tokens, where gradients are taken or the device is not the CPU"
            why = "it could reach the gradients of earlier tokens; unset LINNET_CHECK=values to let it"
            raise ArgumentError(f"an input of {op}", float(x.detach()[~x.isfinite()][0]), accepted, why)


def _finite(x: Tensor) -> bool:
    """Return True if the sum of x is finite; an overflow counts as an infinity, and `_reached` looks closer."""
    return isfinite(float(x.detach().sum(dtype=torch.float32 if x.dtype in NARROW else None)))


def _zeroed(x: Tensor) -> Tensor:
    return x.masked_fill(x.isfinite().logical_not(), 0.0)


def _reached(watched: list[Tensor], axis: int, mask: Tensor | None) -> Tensor | None:
    """Return True from the first non-finite number on, in the shape of the values or broadcastable to it."""
    first, *others = (x.detach().isfinite().logical_not() for x in watched)
    for bad in others:
        first = first | (bad if bad.ndim < first.ndim else bad.any(-1)).reshape(*bad.shape[: first.ndim - 1], 1)
    if mask is not None:
        first = first & mask[(...,) + (None,) * (first.ndim - 2)]
    return first.cumsum(axis) > 0 if bool(first.any()) else None
