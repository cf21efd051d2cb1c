"""Claims of "Linear Transformers are Versatile In-Context Learners" (Vladymyrov et al. 2024, arXiv:2402.14180)."""

from __future__ import annotations

from ..claim import Claim
from . import adaptivity, baselines, diag_full, hazard, table, theorems

CLAIMS: tuple[Claim, ...] = (
    baselines.CLAIM,
    table.CLAIM,
    theorems.CLAIM,
    adaptivity.CLAIM,
    diag_full.CLAIM,
    hazard.CLAIM,
)
