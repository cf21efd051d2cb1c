"""PreparedCalls: a cache of the argument structs of the native step, one per set of rows.

    call = calls.get(rows, threads)        prepared once, valid until a row is removed or the memory moves

Preparing a call takes longer than a step of a small model. Generations and sessions on one engine step different rows
in turns, so several calls are kept; the least recently used one is dropped first. The engine's lock guards the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ...native import gate
from ...native.decode import scratch
from ...native.structs import Decode
from .packed_model import PackedModel
from .slots import Slots

KEPT = 8


@dataclass
class Call:
    """A prepared step: its struct, and the memory that the struct points to."""

    rows: list[int]
    fields: Decode
    slots: Tensor  # [B] int64
    memory: Tensor  # scratch


class PreparedCalls:
    """`places` maps a row of the engine to its slot; the engine updates it."""

    def __init__(self, packed: PackedModel, slots: Slots, places: Mapping[int, int]) -> None:
        self.packed, self.slots, self.places = packed, slots, places
        self._kept: OrderedDict[tuple[int, ...], Call] = OrderedDict()  # by threads and rows; the last used at the end
        self._last: Call | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, rows: list[int], threads: int) -> Call:
        """Return the call for these rows on `threads` threads, prepared now if it is not in the cache."""
        last = self._last
        if last is not None and last.fields.threads == threads and (rows is last.rows or rows == last.rows):
            return last
        key = (threads, *rows)
        call = self._kept.get(key)
        if call is None:
            call = self._kept[key] = self._prepare(rows, threads)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        self._last = call
        return call

    def make_room(self, call: Call) -> None:
        """Make room for one more token in each cache, and for the longest one in the scratch memory."""
        need, fields = self.slots.make_room(call.slots), call.fields
        if need > fields.longest:
            fields.longest = 2 * need
            call.memory = scratch(self.packed.struct, fields.B, fields.threads, fields.longest)
            fields.scratch = gate.address(call.memory)

    def forget(self, rows: Iterable[int]) -> None:
        """Drop the calls that contain one of these rows, which are being removed."""
        gone = set(rows)
        for key in [key for key, call in self._kept.items() if not gone.isdisjoint(call.rows)]:
            del self._kept[key]
        self._last = None

    def clear(self) -> None:
        """Drop all calls, since the memory of the slots has moved."""
        self._kept.clear()
        self._last = None

    def _prepare(self, rows: list[int], threads: int) -> Call:
        kept = self.slots
        slots = torch.tensor([self.places[row] for row in rows], device=gate.CPU)
        memory = scratch(self.packed.struct, len(rows), threads, 0)
        tensors = {
            "scratch": memory, "states": kept.states, "positions": kept.positions, "cache": kept.addresses,
            "capacity": kept.capacity, "slots": slots,
        }  # fmt: skip
        pointers = dict(zip(tensors, gate.addresses(list(tensors.values())), strict=True))
        sizes = {"stride": kept.states.shape[1], "B": len(rows), "threads": threads, "count": len(kept.states)}
        return Call(rows, Decode(**pointers, **sizes), slots, memory)
