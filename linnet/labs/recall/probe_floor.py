"""The probe `floor`: the effect of Based's kernel floor of 1/2 in a trained model, and the model without it.

    kappa(s) = 1 + s + s^2 / 2 >= 1/2,   s = q . k / sqrt(D)        reached only at s = -1
    rest     weight of a query on all tokens but the requested value, of 1           weight    the same for one token
    floor    share of a query's weight due to the floor under those tokens           near      share with |s + 1| < 1/4
    without  accuracy with kappa - 1/2 = (1 + s)^2 / 2 in place of kappa: same q, k, v, no retraining

Aksenov et al. 2024, arXiv:2402.10644: softmax can remove a weight by lowering s, Based cannot.
B rows, Q queries of a row, H heads, T time, D width of q and k:  q [B,Q,H,D]   k [B,T,H,D]   s [B,H,Q,T]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...feature_maps import Taylor
from ...layers import LinearAttention
from ...models import LanguageModel
from .config import TEST_ROWS, RecallConfig
from .probe_iou import BATCH, asked, given, last_mixer
from .score import ratio, score

FLOOR = 0.5
NEAR = 0.25  # of s = -1
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # quantiles of s
EDGES = tuple(-4 + 0.5 * i for i in range(17))  # of the histogram of s, with an open bin on either side
MOST = 2**16  # values of s kept per batch, evenly spaced


class Part(NamedTuple):
    """One batch: rest, weight, floor of every query and head; s of the tokens that were not requested."""

    rest: Tensor
    weight: Tensor
    floor: Tensor
    s: Tensor


@torch.no_grad()
def floor(model: LanguageModel, config: RecallConfig) -> dict[str, Any]:
    """Return means over 512 held-out sequences; {} for a model that is not Based of order 2."""
    mixer = last_mixer(model)
    if not isinstance(mixer, LinearAttention) or config.options or not isinstance(mixer.feature_map, Taylor):
        return {}
    parts = list(_parts(model, mixer, config))
    rest, weight, share = (float(torch.cat(values).mean()) for values in list(zip(*parts, strict=True))[:3])
    scores = score(without_floor(model, config), config.source("test"), range(TEST_ROWS, 2 * TEST_ROWS))
    metrics = {"rest": rest, "weight": weight, "floor": share, "without": ratio(scores["all"])}
    return metrics | spread(torch.cat([part.s for part in parts]))


def without_floor(model: LanguageModel, config: RecallConfig) -> LanguageModel:
    """Return a new model with the same weights and the kernel (1 + s)^2 / 2."""
    other = LanguageModel(config.replace(mixer="zero_floor").model()).eval()
    other.load_state_dict(model.state_dict())
    return other


def spread(s: Tensor) -> dict[str, Any]:  # [n]
    """Return the share near -1, the quantiles, and the shares of the bins between EDGES."""
    bins = torch.bucketize(s, torch.tensor(EDGES), right=True)
    return {
        "near": float(((s + 1).abs() < NEAR).double().mean()),
        "quantiles": [float(s.double().quantile(level)) for level in LEVELS],
        "histogram": (torch.bincount(bins, minlength=len(EDGES) + 1) / s.numel()).tolist(),
    }


def _parts(model: LanguageModel, mixer: LinearAttention, config: RecallConfig) -> Iterator[Part]:
    task = config.source("test")
    for start in range(TEST_ROWS, 2 * TEST_ROWS, BATCH):
        drawn = task.draw(range(start, start + BATCH))
        queries, values = asked(drawn)
        q, k, *_ = mixer.project(given(model, drawn.tokens), None)
        q = q[torch.arange(len(queries))[:, None], queries]  # [B,Q,H,D]
        yield part(mixer, torch.einsum("bqhd,bthd->bhqt", q, mixer.shared(k)), queries, values)


def part(mixer: LinearAttention, dots: Tensor, queries: Tensor, values: Tensor) -> Part:  # [B,H,Q,T], [B,Q], [B,Q]
    """Return the measurements from q . k of every query with every token."""
    where = torch.arange(dots.shape[-1])
    seen = (where <= queries[..., None])[:, None]  # [B,1,Q,T]
    others = seen & (where != values[..., None])[:, None]
    kappa = mixer.feature_map.core.kernel(dots).where(seen, 0.0)
    total = kappa.sum(-1)  # [B,H,Q]
    rest = kappa.where(others, 0.0).sum(-1) / total
    count = others.sum(-1)
    s = (dots * dots.new_tensor(mixer.key_dim) ** -0.5)[others.expand_as(dots)]
    return Part(
        rest.flatten(), (rest / count).flatten(), (FLOOR * count / total).flatten(), s[:: max(1, s.numel() // MOST)]
    )
