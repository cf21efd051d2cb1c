"""The probe `iou`: where the last mixer of a trained model attends at a query (linnet/labs/recall/iou.py).

    map = A[query, column],  columns before the first query        the 512 test sequences

The weights are the layer's own (`Mixer.attention_map`), for the inputs it has in the model; a mixer that is not a
weighted sum of values has none, and the probe returns {}.
B rows, H heads, T time, E model width, Q queries of a row:  tokens [B,T]   queries, values [B,Q]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...layers import Mixer
from ...models import LanguageModel
from ...targets import IGNORE
from .config import TEST_ROWS, RecallConfig
from .iou import attention_iou
from .tasks.recall import Recall

BATCH = 64  # sequences per batch of maps


@torch.no_grad()
def iou(model: LanguageModel, config: RecallConfig) -> dict[str, Any]:
    """Return mass on the requested value, soft IoU, hits and entropy: by head, and of the mean over heads."""
    if type(last_mixer(model)).attention_map is Mixer.attention_map:
        return {}
    drawn = config.source("test").draw(range(TEST_ROWS, 2 * TEST_ROWS))
    queries, values = asked(drawn)
    maps = torch.cat([last_mixer(model).attention_map(given(model, tokens)) for tokens in drawn.tokens.split(BATCH)])
    context = int(queries.min())
    metrics = attention_iou(maps, queries, values, context).to_dict()
    return metrics | {"example": example(maps[0].mean(0)[queries[0], :context], values[0])}


def example(weights: Tensor, values: Tensor) -> dict[str, Any]:  # [Q, context], [Q]
    """Return the attention of the first sequence: a row per query, a column per token of the context."""
    numbers = [[round(x, 4) for x in row] for row in weights.tolist()]
    return {"weights": numbers, "targets": [[row, column] for row, column in enumerate(values.tolist())]}


def last_mixer(model: LanguageModel) -> Mixer:
    """Return the last mixer under test, from which the predictions are read."""
    return model.backbone.layers[-1].mixer


@torch.no_grad()
def given(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return the input of the last mixer for these tokens, [B,T,E]."""
    seen: list[Tensor] = []
    handle = last_mixer(model).register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    try:
        model.backbone(model.embed_inputs(tokens), output_state=False)
    finally:
        handle.remove()
    return seen[0]


def asked(drawn: Recall) -> tuple[Tensor, Tensor]:
    """Return the positions of the queries and of their values, both [B,Q]; every row has the same number."""
    queries = (drawn.targets != IGNORE).nonzero()[:, 1].view(len(drawn.targets), -1)
    return queries, queries - drawn.distance.gather(1, queries)
