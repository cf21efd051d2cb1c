"""What must hold between the parts of a ModelState, wherever it comes from: a file, an engine's caller, a fork.

    check_parts(where, layers, position, model)          every row is in all layers, its tokens counted alike
    check_extras(where, position, history, answer, model) the tensors next to the layers of a file

Native code indexes memory by positions, so nothing may reach it that these have not passed. Only counts, shapes and
dtypes are read, never the numbers of a layer. B rows, T tokens, P width of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import StateError
from ..ops.checks import check_form, check_positions
from ..ops.state import AnyState, KVState, WindowState, real_tokens
from ..ops.state_file import KINDS

if TYPE_CHECKING:
    from .base import Model

AXES = {  # what the axes of a state's tensors are made of, after the batch
    "s": ("number of heads", "number of features", "head_dim"),
    "z": ("number of heads", "number of features"),
    "k": ("window", "number of heads", "key_dim"),
    "v": ("window", "number of heads", "head_dim"),
    "mask": ("window",),
    "x": ("kernel_size", "width"),
}


def check_parts(where: str, layers: Sequence[AnyState], position: Tensor, model: Model | None = None) -> None:
    """StateError unless all parts fit one another, and the layers of the model if there is one.

    Rows are as many everywhere, positions in bounds, and caches hold the tokens that the positions count.
    """
    if model is not None:
        check_layers(where, layers, model)
    _check_position(where, position)
    for i, layer in enumerate(layers):
        _check_kind(where, i, layer)
        if layer[0].shape[0] != len(position):
            got = f"layer {i} has {layer[0].shape[0]} rows, position {len(position)}"
            raise StateError(f"{where}: {got}; accepted: as many")
        if isinstance(layer, (KVState, WindowState)):
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


def _check_tokens_kept(where: str, i: int, layer: KVState | WindowState, position: Tensor) -> None:
    """A cache holds every token of its row, a window the last ones, the newest last."""
    real = real_tokens(layer)
    wanted = position.to(real.device)
    if isinstance(layer, WindowState):
        wanted = wanted.clamp(max=real.shape[1])
        if bool((real[:, :-1] & ~real[:, 1:]).any()):
            raise StateError(f"{where}: the window of layer {i} has gaps; accepted: a mask of False, then True")
    wrong = (real.sum(1) != wanted).nonzero().flatten().tolist()
    if wrong:
        row, kept, most, seen = wrong[0], *(int(x[wrong[0]]) for x in (real.sum(1), wanted, position))
        raise StateError(
            f"{where}: layer {i} remembers {kept} tokens of row {row}, a stream of {seen}; accepted: {most}"
        )


def check_layers(where: str, layers: Sequence[AnyState], model: Model) -> None:
    """StateError unless these are states of this model's layers: kinds and shapes; rows and dtypes are free."""
    wanted = model.backbone.empty_state(1).layers
    same(where, "n_layers", len(layers), len(wanted))
    for i, (given, fresh) in enumerate(zip(layers, wanted, strict=True)):
        same(where, f"what the mixer of layer {i} keeps", type(given).__name__, type(fresh).__name__)
        _check_kind(where, i, given)
        free = 2 if type(fresh).__name__ == "KVState" else 1  # rows, and the length of a cache
        for name, x in fresh._asdict().items():
            has = getattr(given, name)
            for axis in range(free, 0 if x is None else x.ndim):
                more = AXES[name][axis - 1] in ("window", "kernel_size")  # the newest token is not in the state
                sizes = (int(y.shape[axis]) + more for y in (has, x))
                same(where, f"{AXES[name][axis - 1]} of layer {i}", *sizes)


def check_extras(
    where: str, position: Tensor, history: Tensor | None, answer: Tensor | None, model: Model | None
) -> None:
    """StateError unless history [B,T] holds as many tokens of the vocabulary as were seen, and answer is [B,P]."""
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


def same(where: str, field: str, found: object, wanted: object) -> None:
    """StateError unless `found` is `wanted`, as the model has it."""
    if found != wanted:
        raise StateError(
            f"{where}: {field} is {found!r}, but {wanted!r} in this model; use the model the state was made by"
        )
