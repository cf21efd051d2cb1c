"""ModelState: the state of a whole model, one state per layer and the number of tokens each row has seen.

    logits, state = model(tokens)              layers: state classes of ops/state.py
    fork = state                               a value, never modified: keeping a reference is forking
    state.save(path, model=model)              ModelState.load(path, model=model) refuses that of another model

The file is that of ops/state_file.py with up to three more tensors: position [B] and, if given, history [B,T] (the
tokens of each row, -1 after its last) and answer [B,P] (the output of the model after them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from ..errors import StateError
from ..ops.state import AnyState, PathLike, Rows, join_states, row_numbers
from ..ops.state_file import StateFile, StateHeader, compare, load_file, save_states
from .config import ModelConfig
from .state_checks import check_equal, check_extras, check_layers, check_parts

if TYPE_CHECKING:
    from .base import Model


class Named(Protocol):
    """Anything with a fingerprint, such as a tokenizer."""

    @property
    def fingerprint(self) -> str: ...


Tokenizer: TypeAlias = "Named | str"


class ModelState(NamedTuple):
    """The states of all layers; its methods are those of a layer's state."""

    layers: tuple[AnyState, ...]
    position: Tensor  # [B] int64: real tokens seen

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors of all layers, as in `state_bytes`; positions (8 bytes a row) are not included."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Rows) -> ModelState:
        """Return the given batch rows, in that order, repeats allowed."""
        chosen = row_numbers(rows, len(self.position))
        return ModelState(tuple(layer.select(chosen) for layer in self.layers), self.position[chosen])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ModelState:
        """Move to another device or convert to another floating dtype; positions stay int64."""
        return ModelState(tuple(layer.to(device, dtype) for layer in self.layers), self.position.to(device))

    def detach(self) -> ModelState:
        """Cut from the graph: for training over a long stream, one piece at a time."""
        return ModelState(tuple(layer.detach() for layer in self.layers), self.position)

    def clone(self) -> ModelState:
        """Copy every tensor."""
        return ModelState(tuple(layer.clone() for layer in self.layers), self.position.clone())

    @classmethod
    def join(cls, states: Sequence[ModelState]) -> ModelState:
        """Return one state with the rows of all, in order."""
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
        """Write one file, atomically, that records the model and tokenizer it belongs to.

        `tokens`: all tokens of each row. `answer` [B,P]: the output of the model after the last of them.
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
            tokenizer="" if tokenizer is None else _fingerprint(tokenizer),
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
        """Load a state; raise StateError if it is damaged or belongs to another model or tokenizer."""
        return load_saved(path, model=model, tokenizer=tokenizer, device=device).state


class Saved(NamedTuple):
    """The content of a file that `ModelState.save` wrote."""

    state: ModelState
    tokens: list[list[int]] | None  # of each row; None if not saved
    answer: Tensor | None  # [B,P]


def load_saved(
    path: PathLike,
    *,
    model: Model | None = None,
    tokenizer: Tokenizer | None = None,
    device: torch.device | str = "cpu",
) -> Saved:
    """Load as `ModelState.load` does, with the tokens and the output saved with the state."""
    file = load_file(path, device=device)
    if model is not None:
        _check_model(path, file, model)
    if tokenizer is not None:
        compare(path, "tokenizer", file.header.tokenizer, _fingerprint(tokenizer))
    state = ModelState(tuple(file.states), _position(path, file, device))
    check_parts(str(path), state.layers, state.position)
    if file.header.tokens not in (0, most := max(state.position.tolist(), default=0)):  # 0: not recorded
        raise StateError(f"{path}: tokens is {file.header.tokens}, but a row has seen {most}; save the state again")
    history, answer = file.extras.get("history"), file.extras.get("answer")
    check_extras(str(path), state.position, history, answer, model)
    tokens = None if history is None else [[t for t in row if t >= 0] for row in history.tolist()]
    return Saved(state, tokens, answer)


def _check_model(path: PathLike, file: StateFile, model: Model) -> None:
    header: StateHeader = file.header
    if header.config is not None:
        saved = ModelConfig().to_dict() | dict(header.config)  # a field newer than the file has its default
        for name, value in model.config.to_dict().items():
            check_equal(str(path), name, saved[name], value)
    check_layers(str(path), file.states, model)
    if not header.model:
        raise StateError(f"{path} does not record its model; save it with model=..., or load it with model=None")
    field = "model" if header.config is None else "fingerprint of the weights"
    check_equal(str(path), field, header.model, model.fingerprint())


def _position(path: PathLike, file: StateFile, device: torch.device | str) -> Tensor:
    """Return the position of each row [B]; a file of layers only has one number for all rows."""
    if "position" in file.extras:
        return file.extras["position"]
    if not file.states or not file.header.tokens:
        raise StateError(f"{path} does not record how many tokens its rows have seen; save it with ModelState.save")
    return torch.full((file.states[0].rows,), file.header.tokens, device=device)


def _history(tokens: Sequence[Sequence[int]], position: Tensor) -> Tensor:  # [B,T]
    """Return the tokens of all rows as one tensor, -1 after the last of each."""
    seen, lengths = position.tolist(), [len(row) for row in tokens]
    if lengths != seen:
        raise StateError(f"tokens are {lengths} for rows that have seen {seen}; accepted: all tokens of every row")
    history = torch.full((len(seen), max(seen, default=0)), -1)
    for row, ids in zip(history, tokens, strict=True):
        row[: len(ids)] = torch.as_tensor(ids, dtype=torch.int64)
    return history


def _fingerprint(tokenizer: Tokenizer) -> str:
    return tokenizer if isinstance(tokenizer, str) else tokenizer.fingerprint
