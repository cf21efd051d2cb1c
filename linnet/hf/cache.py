"""LinnetCache: a ModelState where Hugging Face expects a cache of keys and values.

    out = model(tokens, use_cache=True);   model(more, past_key_values=out.past_key_values)
    twin = cache.fork()                    a state is a value: keeping it is forking it

With linear mixers it has the same size after any number of tokens. It cannot be cropped: a sum does not remember its
parts. `seen` counts columns, padding included, which is what generate() slices its inputs by; the positions of the real
tokens are in the state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..models.state import ModelState


class LinnetCache(Cache):
    """What a model remembers of a batch; empty until the first forward pass fills it."""

    def __init__(self, state: ModelState | None = None, seen: int | None = None) -> None:
        super().__init__(layers=[])  # none of the library's layers: everything is in the state
        self.state = state
        self.seen = seen if seen is not None else 0 if state is None else int(state.position.max())

    def put(self, state: ModelState | None, tokens: int) -> None:
        """The state after `tokens` more columns."""
        self.state = state
        self.seen += tokens

    def fork(self) -> LinnetCache:
        """A second cache that goes its own way from here; nothing is copied."""
        return LinnetCache(self.state, self.seen)

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
        return -1  # no end

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:  # the same, in transformers 5.0
        return -1

    def reset(self) -> None:
        self.state, self.seen = None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i goes on from row beam_idx[i]."""
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select(torch.arange(max(self.batch_size, 0)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(torch.arange(max(self.batch_size, 0))[torch.as_tensor(indices).cpu()])  # a mask selects as well

    def crop(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            "a LinnetCache cannot be cropped, for a state does not remember its parts; keep cache.fork() at the token "
            "to come back to, and go on from that"
        )

    def _select(self, rows: Tensor) -> None:
        if self.state is not None:
            self.state = self.state.select(rows.to(self.state.position.device))

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_initialized(self) -> bool:
        return self.state is not None

    @property
    def is_croppable(self) -> bool:
        return False

    def __len__(self) -> int:
        """Layers."""
        return 0 if self.state is None else len(self.state.layers)

    def __repr__(self) -> str:
        return f"LinnetCache({self.batch_size} rows, {self.seen} tokens, {self.nbytes} bytes)"
