"""CTC: the probability of labels is a sum over alignments, with repeats collapsed and blanks (symbol 0) removed.

    P(y | x) = sum over alignments a with collapse(a) = y of prod_t p_t(a_t),     "0 7 7 0 7 3" -> "7 7 3"

Graves et al. 2006. Loss, greedy decoding, prefix beam search in log space, and error rates.
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
    """Return -sum log P(y | x) over the batch in nats, a scalar. log_probs must come from log_softmax.

    A target that needs more frames than its row has gets an infinite loss. It raises ValueError instead of being zeroed
    (torch's `zero_infinity`), which would hide a broken example during the whole training.
    """
    check_targets(lengths, targets, target_lengths)
    per_row = functional.ctc_loss(
        log_probs.transpose(0, 1), targets, lengths, target_lengths, BLANK, reduction="none", zero_infinity=False
    )
    return per_row.sum()


def check_targets(lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> None:
    """Raise ValueError for a row whose target needs more frames, is cut off, or contains the blank."""
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
        reason = f"its {int(target_lengths[row])} symbols need {int(need[row])} (a blank separates equal neighbours)"
        raise ValueError(f"row {row} has {int(lengths[row])} frames, but {reason}; leave it out or stack fewer frames")


def frames_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the length of the shortest alignment: one frame per symbol, a blank between equal neighbours. -> [B]."""
    inside = torch.arange(targets.shape[1], device=targets.device)[1:] < target_lengths[:, None]
    return target_lengths + ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)


def greedy_decode(log_probs: Tensor, lengths: Tensor) -> list[list[int]]:
    """Return the most probable alignment of each row, collapsed."""
    best = log_probs.argmax(dim=-1).tolist()
    rows = zip(best, lengths.tolist(), strict=True)
    return [[symbol for symbol, _ in groupby(row[:length]) if symbol != BLANK] for row, length in rows]


class Beams(NamedTuple):
    """K distinct prefixes per row, with the log-mass of their alignments by last symbol; unused: both are -inf."""

    prefix: Tensor  # [B,K,S] long, -1 after its end
    size: Tensor  # [B,K] long
    last: Tensor  # [B,K] long, the last symbol; BLANK when empty
    blank: Tensor  # [B,K] mass of alignments that end in a blank
    symbol: Tensor  # [B,K] mass of alignments that end in `last`


@torch.no_grad()
def prefix_beam_decode(log_probs: Tensor, lengths: Tensor, beam: int = 8, top: int | None = None) -> list[list[int]]:
    """Return the most probable labels of each row, keeping the `beam` best prefixes at each frame.

    A prefix sums over all its alignments, so with a beam as large as the number of prefixes the result is exact. Only
    the `top` most probable symbols of a frame extend a prefix; None: all.
    """
    B, T, V = log_probs.shape
    if beam < 1 or (top is not None and top < 1):
        raise ValueError(f"beam is {beam} and top is {top}; accepted: integers >= 1, or None for top")
    beams = _empty(B, beam, log_probs.device)
    # After a row's end every frame is a blank with probability 1: the masses do not change.
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
    """Return the empty prefix with all the mass, and beam - 1 unused ones."""
    mass = torch.full((rows, beam), -inf, dtype=torch.float64, device=device)
    zero = torch.zeros(rows, beam, dtype=torch.long, device=device)
    alive = torch.arange(beam, device=device) == 0
    return Beams(zero.new_full((rows, beam, 1), -1), zero, zero, mass.masked_fill(alive, 0.0), mass)


def _advance(beams: Beams, scores: Tensor, symbols: Tensor) -> Beams:
    """Advance by one frame: scores [B,V], symbols [B,N] that may extend a prefix."""
    K, N = beams.last.shape[1], symbols.shape[1]
    total = torch.logaddexp(beams.blank, beams.symbol)  # [B,K]
    same = symbols[:, None] == beams.last[..., None]  # [B,K,N]
    # A repeated symbol is new only after a blank; otherwise it extends the alignment of the last one.
    longer = torch.where(same, beams.blank[..., None], total[..., None]) + scores.gather(1, symbols)[:, None]
    blank = total + scores[:, BLANK, None]
    symbol = beams.symbol + scores.gather(1, beams.last)
    longer, symbol = _merge(beams, total, same, longer, symbol)
    stay = torch.logaddexp(blank, symbol)
    pick = torch.cat([stay, longer.flatten(1)], dim=1).topk(K, dim=1)
    new = pick.indices >= K  # [B,K] an extension, not the same prefix
    source = torch.where(new, (pick.indices - K) // N, pick.indices)
    added = symbols.gather(1, torch.where(new, (pick.indices - K) % N, 0))
    return Beams(
        *_append(beams, source, new, added),
        torch.where(new, added, beams.last.gather(1, source)),
        blank.gather(1, source).masked_fill(new, -inf),
        torch.where(new, pick.values, symbol.gather(1, source)),
    )


def _merge(beams: Beams, total: Tensor, same: Tensor, longer: Tensor, symbol: Tensor) -> tuple[Tensor, Tensor]:
    """Move the mass of an extension that equals another beam's prefix to that beam; at most one does."""
    alive = total > -inf
    end = torch.arange(beams.prefix.shape[2], device=total.device) == beams.size[..., None] - 1
    parent = beams.prefix.masked_fill(end, -1)  # [B,K,S] each prefix without its last symbol
    child = (beams.prefix[:, :, None] == parent[:, None]).all(-1)  # [B,i,j]: j is i plus one symbol
    child &= (beams.size > 0)[:, None] & alive[:, None] & alive[..., None]
    source = child.to(torch.uint8).argmax(1)  # [B,j]
    moved = longer.gather(1, source[..., None].expand_as(longer))  # [B,j,N]
    moved = moved.masked_fill(~(same & child.any(1)[..., None]), -inf).amax(2)
    gone = torch.einsum("bij,bjn->bin", child.float(), same.float()) > 0
    return longer.masked_fill(gone, -inf), torch.logaddexp(symbol, moved)


def _append(beams: Beams, source: Tensor, new: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Return prefix and size of the selected beams, always with room for one more symbol."""
    prefix = beams.prefix.gather(1, source[..., None].expand_as(beams.prefix))
    size = beams.size.gather(1, source)
    prefix = prefix.scatter(2, size[..., None], torch.where(new, added, -1)[..., None])
    size = size + new.long()
    if int(size.max()) == prefix.shape[2]:
        prefix = functional.pad(prefix, (0, 1), value=-1)
    return prefix, size


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the number of insertions, deletions and substitutions that turn `a` into `b` (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def error_rate(hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> tuple[int, int]:
    """Return (edits, symbols in the references): the phone error rate on phones, the word error rate on words."""
    edits = sum(edit_distance(h, r) for h, r in zip(hypotheses, references, strict=True))
    return edits, sum(len(r) for r in references)
