"""Order requests for speed: group choices by context, then batch groups of similar length.

    (context, choice), ...  ->  Group(context, choices, places)  ->  batches of groups, longest first

Reading a context once for all its choices saves most of the work: a context with five examples may be twenty times as
long as a choice. Padding is masked, so no result depends on the rest of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple


class Group(NamedTuple):
    """A context and its choices; `places` are the indices of the requests."""

    context: list[int]
    choices: list[list[int]]
    places: list[int]

    @property
    def shared(self) -> bool:
        """True if the state after the context is worth computing once."""
        return len(self.choices) > 1

    @property
    def longest(self) -> int:
        """Number of tokens of the longest choice."""
        return max(map(len, self.choices))

    @property
    def width(self) -> int:
        """Number of tokens this takes in a batch."""
        if not self.shared:
            return len(self.context) + self.longest
        return max(len(self.context), (1 + self.longest) * len(self.choices))


def grouped(requests: Sequence[tuple[list[int], list[int]]], reuse: bool = True) -> list[Group]:
    """Group requests (context, choice) by context; without `reuse` each is a group.

    A context of one token saves nothing, so it is not shared. An empty choice is in no group.
    """
    groups: dict[object, Group] = {}
    for place, (context, choice) in enumerate(requests):
        if choice:
            key = tuple(context) if reuse and len(context) > 1 else place
            group = groups.setdefault(key, Group(context, [], []))
            group.choices.append(choice)
            group.places.append(place)
    return list(groups.values())


def batched(groups: Sequence[Group], tokens: int) -> list[list[Group]]:
    """Batch groups of one kind, longest first, with at most `tokens` per padded batch and at least one group."""
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
