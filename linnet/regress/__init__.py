"""Regression in context: a linear transformer that turns examples into the weights of a linear model.

    InContextRegressor().fit(X, y).predict(X_new)        scikit-learn's interface; partial_fit and forget cost O(d²)

The models are those of Vladymyrov et al. 2024 (arXiv:2402.14180), shipped with the package. The names below load on
first use: only InContextRegressor needs scikit-learn. linnet.labs.icl trains and studies such models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .estimator import InContextRegressor as InContextRegressor
    from .estimator import InContextWarning as InContextWarning
    from .gram import Gram as Gram
    from .model import ICLConfig as ICLConfig
    from .model import ICLTransformer as ICLTransformer
    from .shipped import pretrained as pretrained

_HOMES = {
    "Gram": ".gram",
    "ICLConfig": ".model",
    "ICLTransformer": ".model",
    "InContextRegressor": ".estimator",
    "InContextWarning": ".estimator",
    "pretrained": ".shipped",
}
__all__ = ["Gram", "ICLConfig", "ICLTransformer", "InContextRegressor", "InContextWarning", "pretrained"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # later lookups skip this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
