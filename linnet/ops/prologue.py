"""The contract of the sequence ops, and what the recurrent ones do before and after their equation.

    out, state = op(inputs..., *, initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)

`begin` runs the checks in the order that all ops share (inputs, options, mask, cu_seqlens, initial_state, form and
backend), then prepares the inputs: one sequence per row, in the widest dtype of all inputs and the state, 0 at padding.
`finish` packs the output, rounds it to its dtype and wraps the state. An equation between the two sees neither masks,
nor packing, nor half precision. A native kernel gets the tensors of the caller, with mask and offsets, instead.
B batch, S sequences, T time; R rows: S if packed, else B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import StateError
from ..native.gate import CPU
from .causal import refuse_unguarded
from .checks import WIDE, check_chunk_size, check_cu_seqlens, check_form, check_mask, check_memory, widened
from .dispatch import choose
from .packing import from_rows, real_places, to_rows, token_places
from .precision import widest
from .state import MatrixState


class Contract(NamedTuple):
    """The arguments that every sequence op takes."""

    initial_state: MatrixState | None
    output_final_state: bool
    mask: Tensor | None
    cu_seqlens: Tensor | Sequence[int] | None
    form: str
    backend: str
    chunk_size: int


class Call(NamedTuple):
    """A call that passed the checks."""

    tokens: tuple[Any, ...]  # inputs along time [R,T,...], widened; None where an optional one was left out
    fixed: tuple[Tensor, ...]  # the other inputs, widened
    s: Any  # [R,...], widened
    mask: Tensor | None  # [R,T]
    form: str
    places: Tensor | None  # [S,T]: where the rows of a packed batch hold tokens
    dtype: torch.dtype  # of the output
    output_final_state: bool
    native: bool = False  # the kernel runs: tokens [B,T,...], fixed and s (None: zeros) are the caller's, mask is [B,T]
    offsets: Tensor | None = None  # for the kernel: cu_seqlens [S+1] int64


def begin(
    op: str, how: Contract, tokens: Sequence[Tensor | None], fixed: Sequence[Tensor] = (), *, out: Tensor,
    state: tuple[str, Sequence[int]], fills: Mapping[int, float] = MappingProxyType({}),
    kernel: Callable[[], str | None] | None = None,
) -> Call:  # fmt: skip
    """Check what the ops share and prepare the inputs, whose shapes the op has checked.

    `tokens` are the inputs [B,T,...], `fixed` those without time; the output gets the dtype of `out`. `state` names
    and sizes the axes of the state after the rows. `fills`: what a padded token holds, by input, where it is not 0.
    `kernel` returns why the native kernel cannot take these inputs, or None; only for ops that have one.
    """
    first = tokens[0]
    assert first is not None
    batch, length = first.shape[:2]
    check_chunk_size(how.chunk_size)
    mask, places, rows, offsets = how.mask, None, batch, None
    check_mask(mask, batch, length, first.device)
    refuse_unguarded(op, tokens, mask)
    if how.cu_seqlens is not None:
        offsets = check_cu_seqlens(how.cu_seqlens, length, batch)
        rows = len(offsets) - 1
        length = max(end - start for start, end in pairwise(offsets))
    wide = widest(*tokens, *fixed)
    s = initial_matrix(how.initial_state, rows, *state, first.device, wide)

    def unsupported() -> str | None:
        wider = None if s is None or s.dtype is torch.float32 else s.dtype
        why = None if wider is None else f"the native kernel keeps a float32 state, not {wider}"
        return why if why or kernel is None else kernel()

    form, backend, _ = choose(op, how.form, how.backend, length, unsupported)
    if backend == "native" and out.numel() and all(state[1]):
        starts = None if offsets is None else torch.tensor(offsets, device=CPU)
        given = tuple(tokens), tuple(fixed), s, mask, form, None, out.dtype, how.output_final_state
        return Call(*given, native=True, offsets=starts)
    if offsets is not None:
        places = token_places(offsets, first.device)
        mask = real_places(places, mask)
    wide = widest(s) if wide == torch.float32 else wide
    s = first.new_zeros(rows, *state[1], dtype=wide) if s is None else s if s.dtype == wide else s.to(wide)
    ready: list[Tensor | None] = [x if x is None or places is None else to_rows(x, places) for x in tokens]
    ready = [x if x is None or x.dtype == wide else x.to(wide) for x in ready]
    if mask is not None:
        pad = mask.logical_not()
        ready = [x if x is None else fill(x, pad, fills.get(i, 0.0)) for i, x in enumerate(ready)]
    others = tuple(x if x.dtype == wide else x.to(wide) for x in fixed)
    return Call(tuple(ready), others, s, mask, form, places, out.dtype, how.output_final_state)


def on_torch(how: Contract, s: Tensor | None) -> dict[str, Any]:
    """Return the keywords of the same call on torch, from this matrix of the state: for second derivatives."""
    state = None if s is None else MatrixState(s)
    return how._replace(initial_state=state, form="auto", backend="torch")._asdict()


def finish(call: Call, out: Tensor, s: Tensor | None) -> tuple[Tensor, MatrixState | None]:
    """Return the output [R,T,...] as the caller gave the inputs, and the state if it was requested."""
    out = out.to(call.dtype)
    if call.places is not None:
        out = from_rows(out, call.places)
    return out, MatrixState(s) if call.output_final_state and s is not None else None


def fill(x: Tensor, pad: Tensor | None, value: float = 0.0) -> Tensor:
    """Return x [R,T,...] with `value` wherever `pad` [R,T] is True, NaN included."""
    return x if pad is None else x.masked_fill(pad[(...,) + (None,) * (x.ndim - 2)], value)


def initial_matrix(
    state: Any, rows: int, axes: str, sizes: Sequence[int], device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """Return the matrix of an initial state, one in half precision widened to `dtype`; StateError if it does not fit.

    The inputs that a layer keeps in `MatrixState.x` are not the op's: a state that has some is refused.
    """
    if state is None:
        return None
    if _fits(state, rows, sizes, device):
        check_memory(initial_state=state.s)
        matrix: Tensor = state.s
        return matrix
    if isinstance(state, Tensor):
        raise StateError("initial_state is a Tensor; accepted here: MatrixState; use MatrixState(s)")
    state = widened(state, MatrixState, dtype)
    check_form(state, MatrixState)
    wanted = [rows, *sizes]
    if list(state.s.shape) != wanted:
        raise StateError(f"initial_state.s has shape {list(state.s.shape)}; accepted here: [B,{axes}] = {wanted}")
    if state.s.device != device:
        raise StateError(f"initial_state is on {state.s.device}, the inputs on {device}; use state.to({str(device)!r})")
    if 0 not in state.x.shape[1:]:
        got = f"initial_state.x has shape {list(state.x.shape)}"
        raise StateError(f"{got}, the inputs that a layer keeps; accepted here: none; use MatrixState(state.s)")
    matrix = state.s
    return matrix


def _fits(state: Any, rows: int, sizes: Sequence[int], device: torch.device) -> bool:
    """Return True in two microseconds for a state without a fault; any other goes to checks.py for its sentence."""
    if type(state) is not MatrixState or not (type(state.s) is type(state.x) is Tensor):
        return False
    s, x = state
    return (
        s.shape == (rows, *sizes)
        and x.shape == (rows, 0, 0)
        and s.dtype == x.dtype
        and s.dtype in WIDE
        and s.device == x.device == device
        and s.layout == x.layout == torch.strided
    )
