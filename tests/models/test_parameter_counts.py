"""T9: the parameter counts that the ReBased paper prints for its MQAR models, from configurations of ours.

Aksenov et al. 2024, arXiv:2402.10644, table 6, at widths d = 64 and 512. Every count is

    embedding 8192 d (the head is the same matrix) + positions R d + norms + two layers

    norms      5 LayerNorms of 2 d: two in each block, though no MLP follows the second, and one at the end
    conv       3 d + d filter and bias, d^2 + d gate
    softmax    one head, projections with biases: 4 d^2 + 4 d
    Based      12 heads, no biases: 2 x 12 x 16 d for q and k, 2 x 12 floor(d / 12) d for v and out
    ReBased    768 more: gamma and beta of 12 x 16, for q and for k
    RWKV-4     4 d^2 + 5 d, no biases
    Mamba      6 d^2 in and out, 10 d convolution, 2 d (2 r + 33) b, c and dt of rank r = ceil(d / 16), 34 d a and skip

The rows of positions R are not the same throughout: only these values give the printed counts. Each is one of the
paper's sequence lengths, so its table seems to be put together from runs of different lengths. Mamba's count is missed
by d: what it leaves for norms, 4 d, fits an RMSNorm in each block and a LayerNorm at the end, and a configuration has
one kind of norm.
"""

from __future__ import annotations

from typing import Any

import pytest

from linnet.models import PRESETS, build, count_parameters

ONE_HEAD: dict[str, Any] = {"n_heads": 1, "head_dim": None, "key_dim": None}
SOFTMAX: dict[str, Any] = {**ONE_HEAD, "bias": True}
MAMBA: dict[str, Any] = {**ONE_HEAD, "mlp": "none", "norm": "rms"}

# model, d, rows of positions, the paper's count, fields of the configuration that differ from the preset's
COUNTS = [
    ("attention", 64, 1024, 623_744, {"mixer": "softmax", **SOFTMAX}),
    ("attention", 512, 1024, 6_824_960, {"mixer": "softmax", **SOFTMAX}),
    ("conv attention", 64, 512, 578_752, {"mixer": ("conv", "softmax"), **SOFTMAX}),
    ("conv attention", 512, 128, 5_580_288, {"mixer": ("conv", "softmax"), **SOFTMAX}),
    ("rwkv", 64, 1024, 623_872, {"mixer": "rwkv4", **ONE_HEAD}),
    ("rwkv", 512, 1024, 6_825_984, {"mixer": "rwkv4", **ONE_HEAD}),
    ("conv rwkv", 64, 2048, 677_120, {"mixer": ("conv", "rwkv4"), **ONE_HEAD}),
    ("conv rwkv", 512, 512, 5_777_408, {"mixer": ("conv", "rwkv4"), **ONE_HEAD}),
    ("mamba", 64, 1024, 655_360 - 64, {"mixer": "mamba", **MAMBA}),
    ("mamba", 512, 512, 7_847_936 - 512, {"mixer": "mamba", **MAMBA}),
    ("based", 64, 256, 577_984, {"mixer": ("conv", "based")}),
    ("based", 512, 256, 5_307_904, {"mixer": ("conv", "based"), "head_dim": 512 // 12}),
    ("rebased", 64, 256, 577_984 + 768, {}),
    ("rebased", 512, 256, 5_307_904 + 768, {"head_dim": 512 // 12}),
]


@pytest.mark.parametrize(("model", "d", "rows", "count", "fields"), COUNTS, ids=lambda x: str(x).replace(" ", "-"))
def test_the_papers_count(model: str, d: int, rows: int, count: int, fields: dict[str, Any]) -> None:
    config = PRESETS["mqar"].replace(d_model=d, max_length=rows, **fields)
    assert count_parameters(config) == count


def test_what_the_based_count_is_made_of() -> None:
    model = build(PRESETS["mqar"].replace(mixer=("conv", "based")))
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = "norms" if "norm" in name else name.removeprefix("backbone.").split(".mixer")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    d = 64
    assert list(counts.values()) == [8192 * d, 4 * d + d * d + d, 5 * 2 * d, 2 * 192 * d + 2 * 60 * d, 256 * d], counts
