"""The kernels that the recall laboratory compares with ReBased: row name -> (feature map, its options).

    FEATURE_MAPS[name](head_dim, n_heads, **options)         Based, the paper's rows, and unpublished controls

Aksenov et al. 2024, arXiv:2402.10644, table 1, and `ABLATIONS` of rebased.py. cosFormer is not among them: its map
depends on the position of the token, and a feature map here sees nothing but the token.
"""

from __future__ import annotations

from typing import Any

from ...feature_maps.rebased import ABLATIONS

KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "based": ("based", {}),
    **{row: ("rebased", options) for row, options in ABLATIONS.items()},
    "zero-floor": ("zero_floor", {}),
}
