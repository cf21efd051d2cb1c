"""Every theorem, lemma and identity about linear transformers in context, as a number with the bound it has to keep.

    for check in run(): print(check.name, check.statement, check.value, check.relation, check.bound, check.passed)

CHECKS has one function per statement; they are in verify_forms.py (what the model is), verify_updates.py (what a layer
does), verify_wrong.py (forms in print that fail), verify_optimal.py (what is best possible) and verify_rates.py (how
fast). Vladymyrov et al. 2024 (arXiv:2402.14180). All is float64 and drawn from one seed; no trained model is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ..errors import unknown
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
    """The checks of these names, all without; each draws from the seed anew, so alone it gives the same numbers.

    `report` hears the name of every check before it begins.
    """
    chosen = list(CHECKS) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    if not chosen:
        raise ValueError(f"no check was named; accepted: one or more of {', '.join(CHECKS)}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"the seed is {seed}; accepted: an integer from 0 to 2^63 - 1")
    found = []
    with torch.no_grad():
        for name in chosen:
            if report is not None:
                report(name)
            found += CHECKS[name](torch.Generator().manual_seed(seed))
    return found
