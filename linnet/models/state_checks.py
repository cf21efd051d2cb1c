"""Consistency checks of a ModelState, whether it comes from a file, a caller of an engine, or a fork.

    check_parts(where, layers, position, model)           all layers have the same rows, with as many tokens
    check_extras(where, position, history, answer, model) the tensors that a file has in addition to the layers

Native code indexes memory by positions, so every state passes these checks first. They read counts, shapes, dtypes and
masks, never the numbers of a layer, and know a state class only by what it says of itself (ops/state.py).
B rows, T tokens, P width of an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import StateError
from ..ops.checks import check_form, check_positions
from ..ops.state import KINDS, PAST, AnyState

if TYPE_CHECKING:
    from .base import Model

MASK = "mask"  # the field of a state that marks real tokens


def check_parts(where: str, layers: Sequence[AnyState], position: Tensor, model: Model | None = None) -> None:
    """Raise StateError unless all parts fit one another, and the layers of the model if there is one.

    All layers have the same number of rows, positions are in bounds, and caches hold the tokens that positions count.
    """
    if model is not None:
        check_layers(where, layers, model)
    _check_position(where, position)
    for i, layer in enumerate(layers):
        _check_kind(where, i, layer)
        if layer.rows != len(position):
            got = f"layer {i} has {layer.rows} rows, position {len(position)}"
            raise StateError(f"{where}: {got}; accepted: the same number")
        if MASK in layer.axes:
            _check_tokens_kept(where, i, layer, position)


def _check_position(where: str, position: Tensor) -> None:
    if not isinstance(position, Tensor) or position.dtype != torch.int64 or position.ndim != 1:
        p = position
        got = f"{p.dtype} {list(p.shape)}" if isinstance(p, Tensor) else f"a {type(p).__name__}"
        raise StateError(f"{where}: position is {got}; accepted: int64 [B], 0 or more for each row")
    try:
        check_positions(position)
    except StateError as error:
        raise StateError(f"{where}: {error}") from None


def _check_kind(where: str, i: int, layer: AnyState) -> None:
    if type(layer) not in KINDS.values():
        accepted = ", ".join(kind.__name__ for kind in KINDS.values())
        raise StateError(f"{where}: layer {i} is a {type(layer).__name__}; accepted: one of {accepted}")
    try:
        check_form(layer, type(layer))
    except StateError as error:
        raise StateError(f"{where}: layer {i}: {error}") from None


def _check_tokens_kept(where: str, i: int, layer: AnyState, position: Tensor) -> None:
    """Raise StateError unless a state that grows has all tokens of its rows, any other the last ones, newest last."""
    real = _real_tokens(layer)
    wanted = position.to(real.device)
    if not layer.grows:
        wanted = wanted.clamp(max=real.shape[1])
        if bool((real[:, :-1] & ~real[:, 1:]).any()):
            raise StateError(f"{where}: the window of layer {i} has gaps; accepted: a mask of False, then True")
    wrong = (real.sum(1) != wanted).nonzero().flatten().tolist()
    if wrong:
        row, kept, most, seen = wrong[0], *(int(x[wrong[0]]) for x in (real.sum(1), wanted, position))
        raise StateError(
            f"{where}: layer {i} holds {kept} tokens of row {row}, which has seen {seen}; accepted: {most}"
        )


def _real_tokens(layer: AnyState) -> Tensor:  # [B,T] bool
    """Return the mask of a state that has one, written out if it is None."""
    if MASK in layer.tensors:
        return layer.tensors[MASK]
    sizes: dict[str, int] = {}
    for name, x in layer.tensors.items():
        sizes |= zip(layer.axes[name].split(","), x.shape, strict=True)
    return x.new_ones([sizes[axis] for axis in layer.axes[MASK].split(",")], dtype=torch.bool)


def check_layers(where: str, layers: Sequence[AnyState], model: Model) -> None:
    """Raise StateError unless kinds and shapes are those of this model's layers; rows and dtypes are free."""
    wanted = model.backbone.empty_state(1).layers
    check_equal(where, "n_layers", len(layers), len(wanted))
    for i, (given, fresh) in enumerate(zip(layers, wanted, strict=True)):
        check_equal(where, f"state class of layer {i}", type(given).__name__, type(fresh).__name__)
        _check_kind(where, i, given)
        _check_sizes(where, i, given, fresh)


def _check_sizes(where: str, i: int, given: AnyState, fresh: AnyState) -> None:
    """Raise StateError unless all axes but the rows and the one that grows have the sizes of an empty state."""
    for name, x in fresh.tensors.items():
        sizes = zip(fresh.axes[name].split(","), given.tensors[name].shape, x.shape, strict=True)
        for axis, has, wanted in sizes:
            if axis not in ("B", fresh.grows):
                newest = axis == PAST  # the option counts the newest token too, which is not in the state
                check_equal(where, f"{fresh.words[axis]} of layer {i}", has + newest, wanted + newest)


def check_extras(
    where: str, position: Tensor, history: Tensor | None, answer: Tensor | None, model: Model | None
) -> None:
    """Raise StateError unless history [B,T] has the tokens that positions count, and answer is [B,P]."""
    rows, longest = len(position), max(position.tolist(), default=0)
    vocabulary = None if model is None else model.config.vocab_size
    if history is not None:
        if history.dtype != torch.int64 or list(history.shape) != [rows, longest]:
            got = f"{history.dtype} {list(history.shape)}"
            raise StateError(f"{where}: history is {got}; accepted: int64 {[rows, longest]}, all tokens of every row")
        real = torch.arange(longest, device=history.device) < position.to(history.device)[:, None]
        wrong = torch.where(real, history < 0, history != -1)
        if vocabulary is not None:
            wrong |= history >= vocabulary
        if bool(wrong.any()):
            accepted = f"0 to {'the vocabulary' if vocabulary is None else vocabulary - 1}, and -1 after the last"
            raise StateError(f"{where}: history has token {int(history[wrong][0])}; accepted: {accepted}")
    if answer is not None and (answer.ndim != 2 or len(answer) != rows or not answer.is_floating_point()):
        got = f"{answer.dtype} {list(answer.shape)}"
        raise StateError(f"{where}: answer is {got}; accepted: floating point [B,P], one row for each of {rows}")


def check_equal(where: str, field: str, value: object, wanted: object) -> None:
    """Raise StateError unless a value of the state equals that of the model."""
    if value != wanted:
        raise StateError(
            f"{where}: {field} is {value!r}, but {wanted!r} in this model; use the model that produced the state"
        )
