"""The in-context laboratory: linear transformers on noisy regression, each layer read as a step of an optimiser.

Vladymyrov et al. 2024, "Linear Transformers are Versatile In-Context Learners" (arXiv:2402.14180). The problem is
linnet.tasks.Regression, the models are linnet.models.ICLTransformer. InContextRegressor is the way in for data of your
own; the modules baselines, evaluate, recipes, recursion, verify and explain are for studying it. The names below load
on first use: only InContextRegressor needs scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .estimator import InContextRegressor as InContextRegressor
    from .estimator import InContextWarning as InContextWarning
    from .recursion import nearest_diag as nearest_diag
    from .recursion import trace as trace
    from .shipped import pretrained as pretrained

_HOMES = {
    "InContextRegressor": ".estimator",
    "InContextWarning": ".estimator",
    "nearest_diag": ".recursion",
    "pretrained": ".shipped",
    "trace": ".recursion",
}
__all__ = ["InContextRegressor", "InContextWarning", "nearest_diag", "pretrained", "trace"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
