"""Claims of ReBased (Aksenov et al. 2024, arXiv:2402.10644) and Based (Arora et al. 2024, arXiv:2402.18668)."""

from __future__ import annotations

from ...recall.study import RecallClaim
from .. import claims


def studies() -> dict[str, RecallClaim]:
    """Return every recall study by name, in the order of the scoreboard."""
    return {name: claim for name, claim in claims().items() if isinstance(claim, RecallClaim)}
