"""Source: what the loop asks of data. linnet.data has text, images, speech and streams; yours needs only this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Source(Protocol):
    """Where batches come from; the same rows always give the same bytes."""

    @property
    def length(self) -> int:
        """Examples in an epoch."""

    @property
    def unit(self) -> str:
        """What a speed counts: "tokens", "pixels", "frames", "values"."""

    @property
    def fingerprint(self) -> str:
        """Identity of the data; a resume on other data is refused."""

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The examples with these numbers, collated, on the CPU."""

    def units(self, batch: dict[str, Tensor]) -> int:
        """How many units a batch holds."""
