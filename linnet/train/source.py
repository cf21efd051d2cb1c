"""Source: the interface between data and the training loop. linnet.data implements it; your own data can too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Source(Protocol):
    """A source of batches; the same rows always give the same bytes."""

    @property
    def length(self) -> int:
        """Number of examples in an epoch."""

    @property
    def unit(self) -> str:
        """Unit of throughput: "tokens", "pixels", "frames" or "values"."""

    @property
    def fingerprint(self) -> str:
        """Identity of the data; resuming on other data is refused."""

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return the examples with these indices, collated, on the CPU."""

    def units(self, batch: dict[str, Tensor]) -> int:
        """Return the number of units in a batch."""
