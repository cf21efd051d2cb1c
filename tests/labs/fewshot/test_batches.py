"""Requests in groups and batches: each once, contexts shared where that saves something, no batch too large."""

from __future__ import annotations

from linnet.labs.fewshot.batches import batched, grouped

REQUESTS = [([1, 2, 3], [4]), ([1, 2], [5, 6]), ([1, 2, 3], [7, 8]), ([9], [4]), ([9], [5]), ([1, 2], [])]


def test_choices_after_one_context_are_together() -> None:
    groups = grouped(REQUESTS)
    assert [(g.context, g.choices, g.places) for g in groups] == [
        ([1, 2, 3], [[4], [7, 8]], [0, 2]),
        ([1, 2], [[5, 6]], [1]),
        ([9], [[4]], [3]),
        ([9], [[5]], [4]),
    ]
    assert [g.shared for g in groups] == [True, False, False, False]
    assert [g.width for g in groups] == [6, 4, 2, 2]


def test_without_reuse_each_is_alone() -> None:
    assert [g.places for g in grouped(REQUESTS, reuse=False)] == [[0], [1], [2], [3], [4]]


def test_batches_hold_every_group_once_and_no_more_than_fits() -> None:
    requests = [([1] * (2 + i % 9), [2] * (1 + c)) for i in range(40) for c in range(1 + i % 3)]
    groups = grouped([([*context[:-1], i], choice) for i, (context, choice) in enumerate(requests)]) + grouped(requests)
    batches = batched(groups, 60)
    assert sorted(map(id, groups)) == sorted(id(group) for batch in batches for group in batch)
    for batch in batches:
        assert len({group.shared for group in batch}) == 1
        widths = [group.width for group in batch]
        assert widths == sorted(widths, reverse=True)
        assert len(batch) == 1 or len(batch) * widths[0] <= 60
    assert any(len(batch) > 1 for batch in batches)
    assert batched([], 60) == []
