"""Accuracy by slices: how many queries were answered correctly, and which ones.

    scores["all"] = (right, asked)      accuracy = right / asked

Slices, each a (right, asked) pair of whole numbers, so that batches, tasks and processes add up exactly:
    all              every query
    sequence         sequences with every query right, of the sequences that have any
    pairs/16         the queries of sequences that have 16 of them
    distance/8-15    position of the query minus position of the answer, in powers of two
    pair/4-7         which pair of the context, in powers of two from pair/0 and pair/1
    updated, kept    keys written twice, and once; only if some key was written twice

B sequences, N tokens:  predicted [B,N] ids (the argmax of the logits); only the positions with a target count
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from ....targets import IGNORE
from .recall import Recall

Scores: TypeAlias = dict[str, tuple[int, int]]


def accuracy(predicted: Tensor, recall: Recall) -> Scores:
    """Return the scores of the ids predicted at every position."""
    if predicted.shape != recall.targets.shape:
        raise ValueError(
            f"predicted has shape {list(predicted.shape)}; accepted: {list(recall.targets.shape)}, one id for each "
            "token, such as logits.argmax(-1)"
        )
    asked = recall.targets != IGNORE  # [B,N]
    right = (predicted == recall.targets) & asked
    queries, correct = asked.sum(1), right.sum(1)  # [B]
    hit = right[asked]  # [n] one value per query
    some = queries > 0
    out = {"all": _pair(hit), "sequence": _pair((correct == queries)[some])}
    for count in queries[some].unique().tolist():
        of = queries == count
        out[f"pairs/{count}"] = (int(correct[of].sum()), int(queries[of].sum()))
    out |= _bins("distance", recall.distance[asked], hit) | _bins("pair", recall.pair[asked], hit)
    updated = recall.updated[asked]
    if updated.any():
        out |= {"updated": _pair(hit[updated]), "kept": _pair(hit[~updated])}
    return out


def add_scores(scores: Iterable[Scores]) -> Scores:
    """Return the sum of the scores of these batches."""
    out: Scores = {}
    for one in scores:
        for name, (right, asked) in one.items():
            before = out.get(name, (0, 0))
            out[name] = (before[0] + right, before[1] + asked)
    return out


def _bins(name: str, value: Tensor, hit: Tensor) -> Scores:  # [n], [n] bool
    """Return the slices 0, 1, 2-3, 4-7, ... of an integer that occur."""
    power = torch.frexp(value.double()).exponent  # 0 for 0, else b with 2^(b-1) <= value < 2^b
    return {f"{name}/{_label(b)}": _pair(hit[power == b]) for b in power.unique().tolist()}


def _label(b: int) -> str:
    return str(b) if b < 2 else f"{2 ** (b - 1)}-{2**b - 1}"


def _pair(hit: Tensor) -> tuple[int, int]:
    return int(hit.sum()), hit.numel()
