"""Claims of ReBased (Aksenov et al. 2024, arXiv:2402.10644) and Based (Arora et al. 2024, arXiv:2402.18668)."""

from __future__ import annotations

from ..claim import Claim
from . import few_shot, kernels, recall_text, studies

CLAIMS: tuple[Claim, ...] = (
    kernels.CLAIM,
    *studies.CLAIMS,
    recall_text.CLAIM,
    few_shot.CLAIM,
)
