"""LinnetCache: a ModelState where Hugging Face expects a cache of keys and values.

    out = model(tokens, use_cache=True);   model(more, past_key_values=out.past_key_values)
    twin = cache.fork()                    a state is a value: keeping a reference is forking

With linear mixers it has the same size after any number of tokens. A sum cannot be split into its terms, so tokens can
be removed only while the cache records: it then keeps the state before each pass, and `crop` reads the remaining tokens
again from there, which is how generate() drops the rejected part of a draft. `seen` counts columns, padding included,
as generate() slices its inputs; the positions of the real tokens are in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..models.state import ModelState

Read = Callable[[int], "ModelState | None"]  # n -> the state after the first n columns of a pass
RELATIVE = hasattr(Cache, "activate_past_recording")  # crop(0) removes nothing; in transformers 5.0 it keeps nothing


class Pass(NamedTuple):
    """One forward pass that may be undone."""

    before: ModelState | None
    seen: int  # columns before it
    read: Read


class LinnetCache(Cache):
    """The state of a model for a batch; empty until the first forward pass.

    `static`: every layer's state has a fixed shape, so that a compiled step is never recompiled.
    """

    def __init__(self, state: ModelState | None = None, seen: int | None = None, *, static: bool = False) -> None:
        super().__init__(layers=[])  # no layers of transformers: everything is in the state
        self.state = state
        self.seen = seen if seen is not None else 0 if state is None else int(state.position.max())
        self.static = static
        self.recording = False
        self.passes: list[Pass] = []

    def put(self, state: ModelState | None, tokens: int, read: Read | None = None) -> None:
        """Store the state after `tokens` more columns; `read(n)` gives the state after n of them."""
        if self.recording and read is not None:
            self.passes.append(Pass(self.state, self.seen, read))
        self.state = state
        self.seen += tokens

    def fork(self) -> LinnetCache:
        """Return an independent cache with the same state; nothing is copied."""
        return LinnetCache(self.state, self.seen, static=self.static)

    def activate_past_recording(self) -> None:
        """Keep the state before each later pass, for `crop`."""
        self.recording = True

    def stop_recording(self) -> None:
        """Forget the states before each pass."""
        self.recording, self.passes = False, []

    def is_recording_past(self, layer_idx: int = 0) -> bool:
        return self.recording

    def crop(self, tokens_to_remove: int = 0) -> None:
        """Remove the newest -tokens_to_remove columns; a positive number is the number of columns to keep.

        A later call cannot remove columns from before the pass that holds the first column removed here.
        """
        keep = self.seen + tokens_to_remove if tokens_to_remove < 0 else min(tokens_to_remove, self.seen)
        if tokens_to_remove == 0 and RELATIVE:
            keep = self.seen
        at = next((p for p in reversed(self.passes) if p.seen <= keep), None)
        if keep < self.seen:
            if at is None:
                raise ValueError(
                    f"cannot crop a LinnetCache of {self.seen} tokens to {keep}, since a state cannot be split; call "
                    "cache.activate_past_recording() before reading tokens that may be removed, or keep cache.fork() "
                    "at the token to return to"
                )
            self.state = at.before if at.seen == keep else at.read(keep - at.seen)
            self.seen = keep
        self.passes = [] if at is None else [at]

    @property
    def nbytes(self) -> int:
        """Bytes held by the state of all layers."""
        return 0 if self.state is None else self.state.nbytes

    @property
    def batch_size(self) -> int:
        return -1 if self.state is None else len(self.state.position)

    max_batch_size = batch_size  # its name in transformers 5.0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        new = query_length if isinstance(query_length, int) else len(query_length)  # positions, in transformers 5.0
        return self.seen + new, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1  # unlimited

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:  # the same, in transformers 5.0
        return -1

    def reset(self) -> None:
        self.state, self.seen, self.passes = None, 0, []

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue row i from row beam_idx[i]."""
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select(torch.arange(max(self.batch_size, 0)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(torch.arange(max(self.batch_size, 0))[torch.as_tensor(indices).cpu()])  # a mask selects as well

    def _select(self, rows: Tensor) -> None:
        self.passes = []  # of other rows
        if self.state is not None:
            self.state = self.state.select(rows.to(self.state.position.device))

    @property
    def is_compileable(self) -> bool:
        return self.static

    @property
    def is_initialized(self) -> bool:
        return self.state is not None

    @property
    def is_croppable(self) -> bool:
        return self.recording

    def __len__(self) -> int:
        """Return the number of layers."""
        return 0 if self.state is None else len(self.state.layers)

    def __repr__(self) -> str:
        return f"LinnetCache({self.batch_size} rows, {self.seen} tokens, {self.nbytes} bytes)"
