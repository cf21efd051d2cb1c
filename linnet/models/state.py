"""ModelState: what a whole model remembers, one state for each layer and how many tokens each row has seen.

    logits, state = model(tokens)              layers: one kind of ops/state.py each
    fork = state                               a value: never altered, so keeping it is forking it
    state.save(path, model=model)              ModelState.load(path, model=model): refused if it is another's

The file is that of ops/state_file.py with three tensors beside the layers: position [B], and where they were given
history [B,T] (the tokens each row has seen, -1 after its last) and answer [B,P] (what the model said after them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from ..errors import StateError
from ..ops.state import AnyState, PathLike, Rows, join_states
from ..ops.state_file import StateFile, StateHeader, compare, load_file, save_states
from .config import ModelConfig
from .state_checks import check_extras, check_layers, check_parts, same

if TYPE_CHECKING:
    from .base import Model


class Named(Protocol):
    """A tokenizer, of which only the name matters here."""

    @property
    def fingerprint(self) -> str: ...


Tokenizer: TypeAlias = "Named | str"


class ModelState(NamedTuple):
    """Methods as those of a layer's state."""

    layers: tuple[AnyState, ...]
    position: Tensor  # [B] int64: real tokens so far

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors of all layers, as `state_bytes` counts them; the positions, 8 a row, are beside."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Rows) -> ModelState:
        """The given batch rows, in that order, repeats allowed."""
        chosen = _chosen(rows, len(self.position))
        return ModelState(tuple(layer.select(chosen) for layer in self.layers), self.position[chosen])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ModelState:
        """On another device or in another floating dtype; positions stay whole numbers."""
        return ModelState(tuple(layer.to(device, dtype) for layer in self.layers), self.position.to(device))

    def detach(self) -> ModelState:
        """Cut from the graph: training over a long stream, one piece at a time."""
        return ModelState(tuple(layer.detach() for layer in self.layers), self.position)

    def clone(self) -> ModelState:
        return ModelState(tuple(layer.clone() for layer in self.layers), self.position.clone())

    @classmethod
    def join(cls, states: Sequence[ModelState]) -> ModelState:
        """One state with the rows of all, in order."""
        depths = sorted({len(state.layers) for state in states})
        if len(depths) != 1:
            raise StateError(f"cannot join states of {depths} layers; accepted: one or more states of one model")
        layers = tuple(join_states(parts) for parts in zip(*(state.layers for state in states), strict=True))
        return cls(layers, torch.cat([state.position for state in states]))

    def save(
        self,
        path: PathLike,
        *,
        model: Model | None = None,
        tokenizer: Tokenizer | None = None,
        tokens: Sequence[Sequence[int]] | None = None,
        answer: Tensor | None = None,
    ) -> None:
        """Write one file, whole or not at all, that says whose state it is.

        `tokens`: those each row has seen. `answer` [B,P]: what the model said after the last of them.
        """
        check_parts("the state", self.layers, self.position, model)
        extras = {"position": self.position}
        if tokens is not None:
            extras["history"] = _history(tokens, self.position)
        if answer is not None:
            extras["answer"] = answer
        check_extras("the state", self.position, extras.get("history"), answer, model)
        save_states(
            path,
            self.layers,
            tokens=int(self.position.max()) if len(self.position) else 0,
            model="" if model is None else model.fingerprint(),
            tokenizer="" if tokenizer is None else _name(tokenizer),
            config=None if model is None else model.config.to_dict(),
            extras=extras,
        )

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        model: Model | None = None,
        tokenizer: Tokenizer | None = None,
        device: torch.device | str = "cpu",
    ) -> ModelState:
        """The state in a file; of another model or tokenizer, or damaged, it is refused with the field that differs."""
        return load_saved(path, model=model, tokenizer=tokenizer, device=device).state


class Saved(NamedTuple):
    """All that `ModelState.save` wrote."""

    state: ModelState
    tokens: list[list[int]] | None  # of each row; None where they were not given
    answer: Tensor | None  # [B,P]


def load_saved(
    path: PathLike,
    *,
    model: Model | None = None,
    tokenizer: Tokenizer | None = None,
    device: torch.device | str = "cpu",
) -> Saved:
    """`ModelState.load`, with what was saved beside the state."""
    file = load_file(path, device=device)
    if model is not None:
        _check_model(path, file, model)
    if tokenizer is not None:
        compare(path, "tokenizer", file.header.tokenizer, _name(tokenizer))
    state = ModelState(tuple(file.states), _position(path, file, device))
    check_parts(str(path), state.layers, state.position)
    if file.header.tokens not in (0, most := max(state.position.tolist(), default=0)):  # 0: it does not say
        raise StateError(f"{path}: tokens is {file.header.tokens}, but a row has seen {most}; save the state again")
    history, answer = file.extras.get("history"), file.extras.get("answer")
    check_extras(str(path), state.position, history, answer, model)
    tokens = None if history is None else [[t for t in row if t >= 0] for row in history.tolist()]
    return Saved(state, tokens, answer)


def _check_model(path: PathLike, file: StateFile, model: Model) -> None:
    header: StateHeader = file.header
    if header.config is not None:
        was = ModelConfig().to_dict() | dict(header.config)  # a field the file is too old to know had its default
        for name, value in model.config.to_dict().items():
            same(str(path), name, was[name], value)
    check_layers(str(path), file.states, model)
    if not header.model:
        raise StateError(f"{path} names no model; save it with model=..., or load it with model=None if you know it")
    field = "model" if header.config is None else "fingerprint of the weights"
    same(str(path), field, header.model, model.fingerprint())


def _position(path: PathLike, file: StateFile, device: torch.device | str) -> Tensor:
    """[B]; a file of the layers alone has one number for all rows."""
    if "position" in file.extras:
        return file.extras["position"]
    if not file.states or not file.header.tokens:
        raise StateError(f"{path} does not say how many tokens its rows have seen; save it again with ModelState.save")
    return torch.full((file.states[0][0].shape[0],), file.header.tokens, device=device)


def _history(tokens: Sequence[Sequence[int]], position: Tensor) -> Tensor:  # [B,T]
    seen, lengths = position.tolist(), [len(row) for row in tokens]
    if lengths != seen:
        raise StateError(f"tokens are {lengths} for rows that have seen {seen}; accepted: all tokens of every row")
    history = torch.full((len(seen), max(seen, default=0)), -1)
    for row, own in zip(history, tokens, strict=True):
        row[: len(own)] = torch.as_tensor(own, dtype=torch.int64)
    return history


def _name(tokenizer: Tokenizer) -> str:
    return tokenizer if isinstance(tokenizer, str) else tokenizer.fingerprint


def _chosen(rows: Rows, batch: int) -> list[int]:
    """The rows as numbers, all of which exist."""
    if isinstance(rows, slice):
        return list(range(batch))[rows]
    numbers = torch.as_tensor(rows)
    if numbers.ndim != 1 or (numbers.numel() and numbers.dtype not in (torch.int32, torch.int64)):
        raise StateError(f"rows is {rows!r}; accepted: a list or 1-d integer tensor of batch rows, or a slice")
    chosen: list[int] = numbers.tolist()
    for row in chosen:
        if not -batch <= row < batch:
            has = f"0 to {batch - 1}" if batch else "none"
            raise StateError(f"row {row} is not in the state; its rows are {has}")
    return chosen
