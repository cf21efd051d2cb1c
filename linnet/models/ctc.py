"""CTC: a label sequence's probability is the sum over its alignments, runs collapsed and blanks (symbol 0) dropped.

    P(y | x) = sum over alignments a with collapse(a) = y of prod_t p_t(a_t),     "0 7 7 0 7 3" -> "7 7 3"

Graves et al. 2006. The loss, the most probable alignment, a search over prefixes in log space, and error rates.
B batch, T frames, V symbols with the blank, S targets:  log_probs [B,T,V]   lengths [B]   targets [B,S]
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLANK = 0


def ctc_loss(log_probs: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Nats of the whole batch, -sum log P(y | x), as a scalar. log_probs must come from log_softmax.

    A target that no alignment of its frames can spell has an infinite loss. It is refused by its row, not zeroed
    (torch's `zero_infinity`): a zero would hide a broken example for the whole training.
    """
    check_targets(lengths, targets, target_lengths)
    per_row = functional.ctc_loss(
        log_probs.transpose(0, 1), targets, lengths, target_lengths, BLANK, reduction="none", zero_infinity=False
    )
    return per_row.sum()


def check_targets(lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> None:
    """Refuse, by row, a target that its frames cannot spell, that is cut off, or that holds the blank."""
    for row in (target_lengths > targets.shape[1]).nonzero()[:1, 0].tolist():
        size = int(target_lengths[row])
        raise ValueError(
            f"row {row} has target length {size}; accepted: up to {targets.shape[1]}, the width of targets"
        )
    inside = torch.arange(targets.shape[1], device=targets.device) < target_lengths[:, None]
    for row, i in (inside & (targets == BLANK)).nonzero()[:1].tolist():
        raise ValueError(f"target {BLANK} at [{row}, {i}] is the blank; accepted: symbols from 1 up to the vocabulary")
    need = frames_needed(targets, target_lengths)
    for row in (need > lengths).nonzero()[:1, 0].tolist():
        spelled = f"its {int(target_lengths[row])} symbols need {int(need[row])} (a blank parts equal neighbours)"
        raise ValueError(f"row {row} has {int(lengths[row])} frames, but {spelled}; leave it out or stack fewer frames")


def frames_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Frames of the shortest alignment: one per symbol, and a blank between equal neighbours. [B,S], [B] -> [B]."""
    inside = torch.arange(targets.shape[1], device=targets.device)[1:] < target_lengths[:, None]
    return target_lengths + ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)


def greedy_decode(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """The most probable alignment of each row, collapsed."""
    best = log_probs.argmax(dim=-1).tolist()
    rows = zip(best, lengths.tolist(), strict=True)
    return [[symbol for symbol, _ in groupby(row[:length]) if symbol != BLANK] for row, length in rows]


class Beams(NamedTuple):
    """K distinct prefixes per row, and the log-mass of their alignments by what these end in. Dead: both are -inf."""

    prefix: Tensor  # [B,K,S] long, -1 after the end
    size: Tensor  # [B,K] long
    last: Tensor  # [B,K] long, the last symbol; BLANK when empty
    blank: Tensor  # [B,K] mass of alignments that end in a blank
    symbol: Tensor  # [B,K] mass of alignments that end in `last`


@torch.no_grad()
def prefix_beam_decode(log_probs: Tensor, lengths: Tensor, beam: int = 8, top: int | None = None) -> list[list[int]]:
    """The most probable label sequence of each row among the `beam` best prefixes at each frame.

    A prefix gathers all its alignments, however they came about, so with a beam as large as the number of prefixes
    the answer is exact. `top`: only the `top` most probable symbols of a frame may extend a prefix; None is all.
    """
    B, T, V = log_probs.shape
    if beam < 1 or (top is not None and top < 1):
        raise ValueError(f"beam is {beam} and top is {top}; accepted: integers >= 1, or None for top")
    beams = _empty(B, beam, log_probs.device)
    # Past a row's end every frame is a sure blank: masses stay what they are.
    over = torch.arange(T, device=log_probs.device) >= lengths[:, None]  # [B,T]
    scores = log_probs.double().masked_fill(over[..., None], -inf)
    scores[..., BLANK].masked_fill_(over, 0.0)
    symbols = scores[..., 1:].topk(min(V - 1, top or V), dim=-1).indices + 1  # [B,T,N]
    for t in range(T):
        beams = _advance(beams, scores[:, t], symbols[:, t])
    best = torch.logaddexp(beams.blank, beams.symbol).argmax(1)
    rows = zip(beams.prefix.tolist(), beams.size.tolist(), best.tolist(), strict=True)
    return [prefix[k][: size[k]] for prefix, size, k in rows]


def _empty(rows: int, beam: int, device: torch.device) -> Beams:
    """The empty prefix with all the mass, and beam - 1 dead ones."""
    mass = torch.full((rows, beam), -inf, dtype=torch.float64, device=device)
    zero = torch.zeros(rows, beam, dtype=torch.long, device=device)
    alive = torch.arange(beam, device=device) == 0
    return Beams(zero.new_full((rows, beam, 1), -1), zero, zero, mass.masked_fill(alive, 0.0), mass)


def _advance(beams: Beams, scores: Tensor, symbols: Tensor) -> Beams:
    """One frame: scores [B,V], symbols [B,N] that may extend a prefix."""
    K, N = beams.last.shape[1], symbols.shape[1]
    total = torch.logaddexp(beams.blank, beams.symbol)  # [B,K]
    same = symbols[:, None] == beams.last[..., None]  # [B,K,N]
    # An equal neighbour is a new symbol only after a blank; otherwise it prolongs the last one.
    longer = torch.where(same, beams.blank[..., None], total[..., None]) + scores.gather(1, symbols)[:, None]
    blank = total + scores[:, BLANK, None]
    symbol = beams.symbol + scores.gather(1, beams.last)
    longer, symbol = _merge(beams, total, same, longer, symbol)
    stay = torch.logaddexp(blank, symbol)
    pick = torch.cat([stay, longer.flatten(1)], dim=1).topk(K, dim=1)
    new = pick.indices >= K  # [B,K] an extension, not a stay
    source = torch.where(new, (pick.indices - K) // N, pick.indices)
    added = symbols.gather(1, torch.where(new, (pick.indices - K) % N, 0))
    return Beams(
        *_append(beams, source, new, added),
        torch.where(new, added, beams.last.gather(1, source)),
        blank.gather(1, source).masked_fill(new, -inf),
        torch.where(new, pick.values, symbol.gather(1, source)),
    )


def _merge(beams: Beams, total: Tensor, same: Tensor, longer: Tensor, symbol: Tensor) -> tuple[Tensor, Tensor]:
    """An extension that spells another beam's prefix is that beam: its mass moves there. At most one does."""
    alive = total > -inf
    end = torch.arange(beams.prefix.shape[2], device=total.device) == beams.size[..., None] - 1
    parent = beams.prefix.masked_fill(end, -1)  # [B,K,S] each prefix without its last symbol
    child = (beams.prefix[:, :, None] == parent[:, None]).all(-1)  # [B,i,j]: j is i and one symbol more
    child &= (beams.size > 0)[:, None] & alive[:, None] & alive[..., None]
    source = child.to(torch.uint8).argmax(1)  # [B,j]
    moved = longer.gather(1, source[..., None].expand_as(longer))  # [B,j,N]
    moved = moved.masked_fill(~(same & child.any(1)[..., None]), -inf).amax(2)
    gone = torch.einsum("bij,bjn->bin", child.float(), same.float()) > 0
    return longer.masked_fill(gone, -inf), torch.logaddexp(symbol, moved)


def _append(beams: Beams, source: Tensor, new: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """prefix and size of the picked beams; there is always room for one symbol more."""
    prefix = beams.prefix.gather(1, source[..., None].expand_as(beams.prefix))
    size = beams.size.gather(1, source)
    prefix = prefix.scatter(2, size[..., None], torch.where(new, added, -1)[..., None])
    size = size + new.long()
    if int(size.max()) == prefix.shape[2]:
        prefix = functional.pad(prefix, (0, 1), value=-1)
    return prefix, size


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Insertions, deletions and substitutions that turn `a` into `b` (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def error_rate(hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> tuple[int, int]:
    """(edits, symbols in the references): phoneme error rate on phonemes, word error rate on lists of words."""
    edits = sum(edit_distance(h, r) for h, r in zip(hypotheses, references, strict=True))
    return edits, sum(len(r) for r in references)
