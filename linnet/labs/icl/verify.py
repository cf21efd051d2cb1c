"""Check every theorem, lemma and identity about in-context linear transformers: a number and the bound it must satisfy.

    for check in run(): print(check.name, check.statement, check.value, check.relation, check.bound, check.passed)

CHECKS has one function per statement, in verify_forms.py (forms of the model), verify_updates.py (what a layer does),
verify_wrong.py (published forms that fail), verify_optimal.py (optimal predictors) and verify_rates.py (convergence
rates). Vladymyrov et al. 2024 (arXiv:2402.14180). Everything is float64 and seeded; no trained model is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ...errors import unknown
from .verify_check import Check as Check
from .verify_forms import diag, gram, lemma_4_3, rotation, theorem_4_1, theorem_4_2
from .verify_optimal import gd_bound, one_layer, squares
from .verify_rates import lemma_a_2, lemma_a_3, theorem_5_1, theorem_5_2
from .verify_updates import example, lemma_4_4, roles
from .verify_wrong import wrong_forms

CHECKS: dict[str, Callable[[torch.Generator], list[Check]]] = {
    "gram": gram,
    "theorem-4.1": theorem_4_1,
    "lemma-4.3": lemma_4_3,
    "theorem-4.2": theorem_4_2,
    "diag": diag,
    "rotation": rotation,
    "lemma-4.4": lemma_4_4,
    "roles": roles,
    "example": example,
    "wrong-forms": wrong_forms,
    "squares": squares,
    "one-layer": one_layer,
    "gd++-bound": gd_bound,
    "lemma-a.2": lemma_a_2,
    "lemma-a.3": lemma_a_3,
    "theorem-5.1": theorem_5_1,
    "theorem-5.2": theorem_5_2,
}


def run(names: Iterable[str] | None = None, seed: int = 0, report: Callable[[str], None] | None = None) -> list[Check]:
    """Run the checks with these names, by default all; each starts from the seed and gives the same numbers alone.

    `report` receives the name of every check before it starts.
    """
    chosen = list(CHECKS) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    if not chosen:
        raise ValueError(f"no check was named; accepted: one or more of {', '.join(CHECKS)}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"the seed is {seed}; accepted: an integer from 0 to 2^63 - 1")
    checks = []
    with torch.no_grad():
        for name in chosen:
            if report is not None:
                report(name)
            checks += CHECKS[name](torch.Generator().manual_seed(seed))
    return checks
