"""Requests in the order that costs least: choices after one context together, then batches of about one length.

    (context, choice), ...  ->  Group(context, choices, places)  ->  batches of groups, longest first

Reading a context once for all its choices saves most where it pays most: a context with five examples in it may be
twenty times as long as a choice. The padding of a batch is under a mask, so no number depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple


class Group(NamedTuple):
    """A context and what may follow it; `places` are the numbers of the requests."""

    context: list[int]
    choices: list[list[int]]
    places: list[int]

    @property
    def shared(self) -> bool:
        """Is a state worth computing?"""
        return len(self.choices) > 1

    @property
    def longest(self) -> int:
        """Tokens of the longest choice."""
        return max(map(len, self.choices))

    @property
    def width(self) -> int:
        """Tokens that this takes in a batch."""
        if not self.shared:
            return len(self.context) + self.longest
        return max(len(self.context), (1 + self.longest) * len(self.choices))


def grouped(requests: Sequence[tuple[list[int], list[int]]], reuse: bool = True) -> list[Group]:
    """Requests (context, choice) with the same context together; each alone without `reuse`.

    A context of one token saves nothing, so it is not shared. An empty choice is in no group.
    """
    found: dict[object, Group] = {}
    for place, (context, choice) in enumerate(requests):
        if choice:
            key = tuple(context) if reuse and len(context) > 1 else place
            group = found.setdefault(key, Group(context, [], []))
            group.choices.append(choice)
            group.places.append(place)
    return list(found.values())


def batched(groups: Sequence[Group], tokens: int) -> list[list[Group]]:
    """Groups of one kind, longest first, so many that the padded batch has at most `tokens`; one at least."""
    batches: list[list[Group]] = []
    for _, kind in groupby(sorted(groups, key=lambda g: (g.shared, -g.width)), key=lambda g: g.shared):
        batch: list[Group] = []
        for group in kind:
            if batch and (len(batch) + 1) * batch[0].width > tokens:
                batches.append(batch)
                batch = []
            batch.append(group)
        batches.append(batch)
    return batches
