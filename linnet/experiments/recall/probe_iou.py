"""The probe `iou`: where a trained model's last mixer looks when it is asked (linnet/experiments/recall/iou.py).

    map = A[query, column],  columns before the first question        512 held-out sequences, the reported ones

The weights are those of the layer itself (`Mixer.attention_map`), for the very inputs it has in the model; a mixer
that is no weighted sum of values has none, and gives {}.
B rows, H heads, T time, E model width, Q queries of a row:  tokens [B,T]   queries, values [B,Q]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...layers import Mixer
from ...models import LanguageModel
from ...tasks.recall import IGNORED, Recall
from .config import TEST_ROWS, RecallConfig
from .iou import attention_iou

BATCH = 64  # sequences whose maps are made at once


@torch.no_grad()
def iou(model: LanguageModel, config: RecallConfig) -> dict[str, Any]:
    """Mass on the value asked for, soft IoU, hits and entropy: by head, and of the mean over heads."""
    if type(last_mixer(model)).attention_map is Mixer.attention_map:
        return {}
    drawn = config.source("test").draw(range(TEST_ROWS, 2 * TEST_ROWS))
    queries, values = asked(drawn)
    maps = torch.cat([last_mixer(model).attention_map(given(model, tokens)) for tokens in drawn.tokens.split(BATCH)])
    context = int(queries.min())
    found = attention_iou(maps, queries, values, context).to_dict()
    return found | {"example": example(maps[0].mean(0)[queries[0], :context], values[0])}


def example(weights: Tensor, values: Tensor) -> dict[str, Any]:  # [Q, context], [Q]
    """The first sequence to look at: a row for each question, a column for each token of the context."""
    numbers = [[round(x, 4) for x in row] for row in weights.tolist()]
    return {"weights": numbers, "targets": [[row, column] for row, column in enumerate(values.tolist())]}


def last_mixer(model: LanguageModel) -> Mixer:
    """The mixer under test that the answers are read from."""
    return model.backbone.layers[-1].mixer


@torch.no_grad()
def given(model: LanguageModel, tokens: Tensor) -> Tensor:
    """What the last mixer is given for these tokens, [B,T,E]."""
    seen: list[Tensor] = []
    handle = last_mixer(model).register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    try:
        model.backbone(model.enter(tokens), output_state=False)
    finally:
        handle.remove()
    return seen[0]


def asked(drawn: Recall) -> tuple[Tensor, Tensor]:
    """Positions of the questions and of the values they ask for, [B,Q] both; every row asks as many."""
    queries = (drawn.targets != IGNORED).nonzero()[:, 1].view(len(drawn.targets), -1)
    return queries, queries - drawn.distance.gather(1, queries)
