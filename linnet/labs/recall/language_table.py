"""The loss of a table of bigram counts on the test windows of the models: what a model knows that looks nothing up.

    p(y | x) = (count(x, y) + 1) / (count(x) + V)

A softmax model that is no better on recall hits has learned no more than such a table, and gaps to it say nothing about
recall (language_verdict.py).
"""

from __future__ import annotations

import torch

from .language_config import TextConfig
from .language_text import Text
from .tasks import Bigrams, recall_hits

BATCH = 32  # windows at a time
PARTS = ("hits", "rest")
Losses = dict[str, tuple[float, int]]  # part -> sum of nats, number of targets


def by_table(text: Text, config: TextConfig) -> Losses:
    """Return the loss of a table of bigram counts on the test windows of the models."""
    bigrams, held = text.bigrams(), text.windows("valid", config.seq_len)
    most, seen = bigrams.most(config.rare), first_counts(bigrams)
    nats, counts = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0)
    last = min(held.length, config.chosen_on + config.windows)
    for first in range(config.chosen_on, last, BATCH):
        batch = held.batch(range(first, min(first + BATCH, last)))
        tokens, targets = batch["tokens"], batch["targets"]
        hits, real = recall_hits(tokens, targets, bigrams, most), targets >= 0
        loss = (seen[tokens] + bigrams.vocab_size).log() - (bigrams.of(tokens, targets) + 1).double().log()
        for part, of_it in zip(PARTS, (hits & real, ~hits & real), strict=True):
            nats[part], counts[part] = nats[part] + float(loss[of_it].sum()), counts[part] + int(of_it.sum())
    return {part: (nats[part], counts[part]) for part in PARTS}


def first_counts(bigrams: Bigrams) -> torch.Tensor:
    """Return [V] float64: how often each token is the first of a bigram."""
    counts = torch.zeros(bigrams.vocab_size, dtype=torch.float64)
    return counts.index_add_(0, bigrams.pairs // bigrams.vocab_size, bigrams.counts.double())
