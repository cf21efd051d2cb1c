"""CTC against brute force over all alignments: the loss, its gradient and both decoders; error rates by hand."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import log_softmax

from linnet.models.ctc import ctc_loss, edit_distance, error_rate, frames_needed, greedy_decode, prefix_beam_decode

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def draw(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return log_softmax(spread * torch.randn(*shape, generator=g, dtype=torch.float64), dim=-1)


def collapse(alignment: tuple[int, ...]) -> tuple[int, ...]:
    runs = [s for t, s in enumerate(alignment) if t == 0 or s != alignment[t - 1]]
    return tuple(s for s in runs if s)


def every_label(log_probs: Tensor) -> dict[tuple[int, ...], float]:
    """Return P of each label sequence of one row [T,V], the sum over all V^T alignments."""
    T, V = log_probs.shape
    p, total = log_probs.exp().tolist(), defaultdict[tuple[int, ...], float](float)
    for alignment in itertools.product(range(V), repeat=T):
        mass = 1.0
        for t, symbol in enumerate(alignment):
            mass *= p[t][symbol]
        total[collapse(alignment)] += mass
    return total


def test_loss_is_the_sum_over_alignments() -> None:
    log_probs, lengths = draw(3, 5, 3), torch.tensor([5, 4, 5])
    targets, sizes = torch.tensor([[1, 1, 2], [2, 0, 0], [0, 0, 0]]), torch.tensor([3, 1, 0])
    want = 0.0
    for row, length, target, size in zip(log_probs, lengths, targets, sizes, strict=True):
        labels = every_label(row[:length])
        want -= torch.tensor(labels[tuple(target[:size].tolist())], dtype=torch.float64).log()
    torch.testing.assert_close(ctc_loss(log_probs, lengths, targets, sizes), want, **EXACT)


def test_gradient_of_the_loss() -> None:
    logits = draw(2, 6, 4).requires_grad_()
    lengths, targets, sizes = torch.tensor([6, 4]), torch.tensor([[1, 1, 3], [2, 0, 0]]), torch.tensor([3, 1])
    assert torch.autograd.gradcheck(lambda x: ctc_loss(log_softmax(x, -1), lengths, targets, sizes), (logits,))


def test_an_impossible_alignment_is_refused_by_its_row() -> None:
    targets, sizes = torch.tensor([[1, 2, 0], [3, 3, 3]]), torch.tensor([2, 3])
    assert frames_needed(targets, sizes).tolist() == [2, 5]
    assert ctc_loss(draw(2, 5, 4), torch.tensor([2, 5]), targets, sizes).isfinite()
    with pytest.raises(ValueError, match=r"row 1 has 4 frames, but its 3 symbols need 5 .* stack fewer frames"):
        ctc_loss(draw(2, 5, 4), torch.tensor([5, 4]), targets, sizes)


@pytest.mark.parametrize(
    ("targets", "sizes", "message"),
    [
        ([[1, 2], [3, 0]], [2, 2], r"target 0 at \[1, 1\] is the blank"),
        ([[1, 2], [3, 0]], [2, 3], r"row 1 has target length 3; accepted: up to 2"),
    ],
)
def test_targets_that_say_something_else(targets: list[list[int]], sizes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ctc_loss(draw(2, 5, 4), torch.tensor([5, 5]), torch.tensor(targets), torch.tensor(sizes))


def test_silence_is_a_target() -> None:
    log_probs = draw(2, 3, 4)
    nothing, sizes = torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    torch.testing.assert_close(
        ctc_loss(log_probs, torch.tensor([3, 2]), nothing, sizes), -log_probs[0, :, 0].sum() - log_probs[1, :2, 0].sum()
    )


def test_what_stands_behind_a_target_does_not_count() -> None:
    assert frames_needed(torch.tensor([[1, 1, 1, 0, 0]]), torch.tensor([1])).tolist() == [1]
    assert frames_needed(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0])).tolist() == [0, 0]


def test_greedy_collapses_the_best_alignment() -> None:
    best = torch.tensor([[0, 7, 7, 0, 7, 3, 3], [5, 5, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 2]])
    log_probs = log_softmax(torch.nn.functional.one_hot(best, 8).double(), -1)
    assert greedy_decode(log_probs, torch.tensor([7, 4, 6])) == [[7, 7, 3], [5], []]


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(2, 4), st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 3.0]))
def test_a_large_beam_finds_the_most_probable_labels(T: int, V: int, seed: int, spread: float) -> None:
    log_probs = draw(T, V, seed=seed, spread=spread)
    labels = every_label(log_probs)
    (got,) = prefix_beam_decode(log_probs[None], torch.tensor([T]), beam=len(labels) + 3)
    assert labels[tuple(got)] == pytest.approx(max(labels.values()), rel=1e-10)


def plain_beam(log_probs: Tensor, beam: int, top: int | None) -> list[int]:
    """Run the same search with a dict of prefixes for one row [T,V], in probabilities."""
    beams = {(): (1.0, 0.0)}
    for row in log_probs.exp().tolist():
        usable = sorted(range(1, len(row)), key=lambda s: -row[s])[:top]
        grown: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, symbol) in beams.items():
            grown[prefix][0] += (blank + symbol) * row[0]
            if prefix:
                grown[prefix][1] += symbol * row[prefix[-1]]
            for s in usable:
                grown[(*prefix, s)][1] += (blank if prefix and s == prefix[-1] else blank + symbol) * row[s]
        beams = dict(sorted(((p, (b, s)) for p, (b, s) in grown.items()), key=lambda x: -sum(x[1]))[:beam])
    return list(max(beams, key=lambda p: sum(beams[p])))


@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("beam", [1, 2, 4, 8])
def test_batched_beams_are_the_plain_ones(beam: int, top: int | None) -> None:
    """Also with small beams, where prefixes are dropped and return; rows of every length share a batch."""
    log_probs, lengths = draw(12, 14, 5, seed=beam, spread=1.5), torch.arange(12) + 3
    want = [plain_beam(row[:n], beam, top) for row, n in zip(log_probs, lengths, strict=True)]
    assert prefix_beam_decode(log_probs, lengths, beam=beam, top=top) == want
    assert len({tuple(x) for x in want}) > 4


def test_frames_after_the_end_change_nothing() -> None:
    log_probs, lengths = draw(4, 9, 5), torch.tensor([9, 0, 3, 6])
    other = torch.where(torch.arange(9)[None, :, None] < lengths[:, None, None], log_probs, draw(4, 9, 5, seed=1))
    for decode in (greedy_decode, prefix_beam_decode):
        assert decode(log_probs, lengths) == decode(other, lengths)
        assert decode(log_probs, lengths)[1] == []


def test_beam_beats_greedy_where_alignments_add_up() -> None:
    """Greedy reads blank, blank; the mass of "1" is spread over three alignments."""
    log_probs = torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log()
    assert greedy_decode(log_probs, torch.tensor([2])) == [[]]
    assert prefix_beam_decode(log_probs, torch.tensor([2])) == [[1]]
    with pytest.raises(ValueError, match="beam is 0 and top is None; accepted: integers >= 1"):
        prefix_beam_decode(log_probs, torch.tensor([2]), beam=0)


def test_edit_distance() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_distance([1, 2, 3], [1, 3]) == 1
    assert edit_distance("flaw", "lawn") == 2


@given(st.text("ab", max_size=5), st.text("ab", max_size=5), st.text("ab", max_size=5))
def test_edit_distance_is_a_metric(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_error_rate_sums_over_the_set() -> None:
    assert error_rate([[1, 2], [3]], [[1, 2, 2], [4]]) == (2, 4)
    assert error_rate(["the cat sat".split()], ["the bat sat down".split()]) == (2, 4)
    with pytest.raises(ValueError, match="zip"):
        error_rate([[1]], [])
