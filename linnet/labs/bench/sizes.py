"""One case of the benchmark: its sizes, its threads, and the minimal work.

    floor = 4 F V flops per token and head forward (update and read of an F x V state), 14 F V with the backward pass

B batch, T time, H heads, D width before phi, F features, V values; streams = B x H. No torch here: a run is
planned, or refused, without importing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

FORWARD, BOTH = "forward", "forward+backward"
MODES = (FORWARD, BOTH)
FLOOR = {FORWARD: 4, BOTH: 14}


@dataclass(frozen=True)
class Case:
    threads: int
    streams: int
    length: int
    head_dim: int
    value_dim: int
    feature_map: str = "elu"

    @property
    def heads(self) -> int:
        return gcd(self.streams, 8)

    @property
    def batch(self) -> int:
        return self.streams // self.heads

    @property
    def tokens(self) -> int:
        """Return tokens times heads, over the whole batch."""
        return self.streams * self.length

    @property
    def feature_dim(self) -> int:
        pairs = self.head_dim * (self.head_dim + 1) // 2
        return {"elu": self.head_dim, "taylor": 1 + self.head_dim + pairs}.get(self.feature_map, pairs)

    def floor(self, mode: str) -> int:
        """Return the flops of the whole case that every exact algorithm with an F x V state needs."""
        return FLOOR[mode] * self.feature_dim * self.value_dim * self.tokens

    def describe(self) -> dict[str, Any]:
        names = (
            "threads",
            "streams",
            "batch",
            "heads",
            "length",
            "head_dim",
            "value_dim",
            "feature_map",
            "feature_dim",
        )
        return {name: getattr(self, name) for name in names}
