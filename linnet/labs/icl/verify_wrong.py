"""Checks that some published forms are wrong: each must differ from the network by more than rounding.

    right                                      printed, in a text about the paper or in its lemma 4.4
    M' = (I + A) M - b wᵀ                      + b wᵀ
    a' = (1 + e) a + <c, u>                    <c, w>
    w' = (1 + e) w - Mᵀ c                      M of the next layer
    V = M + u w*ᵀ                              M + a u w*ᵀ
    Σ (a w* - w)                               Σ (a w - w)

Letters as in recursion.py and verify_updates.py. A step is a whole recursion with one mistake.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import recursion
from .recursion import Quantities, Step, apply, trace
from .verify_check import Check, drawn, error, tokens
from .verify_forms import described
from .verify_updates import Fit, layer_errors

WRONG = 1e-3  # relative: ten million times the bound of the right forms


def wrong_sign(g: Tensor, now: Quantities) -> Quantities:
    """Step with M' = (I + A) M + b wᵀ."""
    m = now.m + g[..., :-1, :-1] @ now.m + g[..., :-1, -1:] * now.w.unsqueeze(-2)
    return recursion.step(g, now)._replace(m=m)


def wrong_vector(g: Tensor, now: Quantities) -> Quantities:
    """Step with a' = (1 + e) a + <c, w>."""
    return recursion.step(g, now)._replace(a=(1 + g[..., -1, -1]) * now.a + (g[..., -1, :-1] * now.w).sum(-1))


def wrong_layer(g: Tensor, now: Quantities) -> Quantities:
    """Step with w' = (1 + e) w - M'ᵀ c."""
    after = recursion.step(g, now)
    return after._replace(w=(1 + g[..., -1, -1:]) * now.w - apply(after.m.mT, g[..., -1, :-1]))


STEPS: dict[str, Step] = {
    "M' = (I + A) M + b wᵀ": wrong_sign,
    "a' = (1 + e) a + <c, w>": wrong_vector,
    "w' = (1 + e) w - M'ᵀ c": wrong_layer,
}


def wrong_mixed(now: Quantities, fit: Fit) -> Tensor:
    """Return V = M + a u w*ᵀ."""
    return now.m + now.a[..., None, None] * now.u.unsqueeze(-1) * fit.w.unsqueeze(-2)


def wrong_pull(now: Quantities, fit: Fit) -> Tensor:
    """Return Σ (a w - w)."""
    return apply(fit.sigma, (now.a.unsqueeze(-1) - 1) * now.w)


def wrong_forms(generator: torch.Generator) -> list[Check]:
    """Check the error of each form over 4 layers."""
    model, batch = drawn("full", generator, layers=4, heads=3)
    wanted = tokens(model, batch)
    errors = {
        form: error(described(trace(model, batch.gram.s, step=step), batch), wanted) for form, step in STEPS.items()
    }
    model, batch = drawn("diag", generator, layers=4, heads=2)
    errors["lemma 4.4 with M + a u w*ᵀ"] = max(layer_errors(model, batch, mixed=wrong_mixed))
    errors["lemma 4.4 with Σ (a w - w)"] = max(layer_errors(model, batch, pull=wrong_pull))
    return [Check("wrong-forms", f"{form} is wrong: its error", value, WRONG, ">=") for form, value in errors.items()]
