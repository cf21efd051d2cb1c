"""Recall hits: the tokens of a text that can be looked up in the window and are hard to predict otherwise.

    hit_t  =  (x_t, x_{t+1}) occurred earlier in the window,  and is rare in training: count(x_t, x_{t+1}) <= most

Arora et al. 2023 (Zoology), arXiv:2312.04927, section 3: there most = 1250, on a corpus of billions of tokens, and the
hits are 6.4 % of the tokens and 82 % of the perplexity gap between gated convolutions and attention. A count is
meaningful only relative to the size of the text, so here `most` comes from a share: the largest count such that bigrams
up to it make up no more than that share of the training text. A share of 1 takes every repeated bigram.
B rows, T tokens, n bigrams that occur:  tokens, targets, hits [B,T]   pairs, counts [n]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ....targets import IGNORE


class Bigrams(NamedTuple):
    """The count of each bigram of a text; pairs are first * vocab_size + second, in increasing order."""

    pairs: Tensor  # [n] int64
    counts: Tensor  # [n] int64
    vocab_size: int

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def of(self, tokens: Tensor, targets: Tensor) -> Tensor:  # [...], [...] -> [...]
        """Return the count of each pair; 0 for one that never occurs."""
        wanted = tokens * self.vocab_size + targets
        if not len(self.pairs):
            return torch.zeros_like(wanted)
        at = torch.searchsorted(self.pairs, wanted).clamp(max=len(self.pairs) - 1)
        return torch.where(self.pairs[at] == wanted, self.counts[at], 0)

    def without(self, part: Bigrams) -> Bigrams:
        """Return the counts of the text without one of its parts."""
        first, second = part.pairs // part.vocab_size, part.pairs % part.vocab_size
        if part.vocab_size != self.vocab_size or (self.of(first, second) < part.counts).any():
            raise ValueError(
                f"a part with {part.total} bigrams of {part.vocab_size} tokens is not part of a text with {self.total} "
                f"of {self.vocab_size}; accepted: counts of a part of the same text, with the same tokenizer"
            )
        left = self.counts - part.of(self.pairs // self.vocab_size, self.pairs % self.vocab_size)
        return Bigrams(self.pairs[left > 0], left[left > 0], self.vocab_size)

    def most(self, share: float) -> int:
        """Return the largest count such that bigrams with at most that count make up at most `share` of the text."""
        if not 0 < share <= 1:
            raise ValueError(f"share is {share!r}; accepted: a number above 0, up to 1, the share of rare text")
        ordered = self.counts.sort().values
        covered = torch.searchsorted(ordered.cumsum(0), int(share * self.total), right=True)  # bigrams that fit
        if covered == len(ordered):
            return int(ordered[-1]) if len(ordered) else 0
        return int(ordered[covered]) - 1  # one below the count of the first that does not fit


def count_bigrams(batches: Iterable[dict[str, Tensor]], vocab_size: int) -> Bigrams:
    """Count over batches of {"tokens", "targets"} with adjacent windows; targets of -100 are ignored."""
    pairs, counts = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    for batch in batches:
        tokens, targets = batch["tokens"], batch["targets"]
        real = targets != IGNORE
        occurring, times = (tokens[real] * vocab_size + targets[real]).unique(return_counts=True)
        pairs, where = torch.cat([pairs, occurring]).unique(return_inverse=True)
        counts = torch.zeros_like(pairs).index_add_(0, where, torch.cat([counts, times]))
    return Bigrams(pairs, counts, vocab_size)


def recall_hits(tokens: Tensor, targets: Tensor, bigrams: Bigrams, most: int) -> Tensor:
    """Return which targets are hits, [B,T] bool: True where (token, target) occurred before in its row and is rare."""
    if tokens.ndim != 2 or tokens.shape != targets.shape:
        raise ValueError(
            f"tokens {list(tokens.shape)} and targets {list(targets.shape)} do not match; accepted: [B,T] both, the "
            "target being the next token"
        )
    real = targets != IGNORE
    pairs = torch.where(real, tokens * bigrams.vocab_size + targets, -1)
    ordered, place = pairs.sort(dim=1, stable=True)  # equal pairs side by side, the earliest first
    again = torch.zeros_like(real)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    seen = torch.zeros_like(real).scatter_(1, place, again)
    return seen & real & (bigrams.of(tokens, targets) <= most)
