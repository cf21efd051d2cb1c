"""InContextRegressor: a pretrained linear transformer as a scikit-learn regressor that learns by adding up.

    InContextRegressor().fit(X, y).predict(X_new)          X [n,d] with d up to the model's 10, y [n]
    partial_fit (stream), forget (take rows out), decay (fade), merge (another device's sums), save / load

Learning is only the running sums of linnet/icl/moments.py; the transformer turns them into weights at the first
`predict` after a change, without solving a system (linnet/icl/adapt.py). Where its answer cannot be trusted, ridge
answers: `fallback_` says why, and an InContextWarning says so once per fit. scikit-learn is needed for this file only.
"""

from __future__ import annotations

import os
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..models import ICLTransformer
from .adapt import Answer, Layers, answer
from .moments import Array, Moments
from .shipped import NAMES, pretrained
from .state_file import load_moments, save_moments


class InContextWarning(UserWarning):
    """The transformer's answer was set aside for ridge."""


class _Memory:
    """The sums and what follows from them, worked out when first asked for; `warned` once per fit."""

    def __init__(self, layers: Layers, moments: Moments) -> None:
        self.layers, self.moments = layers, moments
        self.known: Answer | None = None
        self.warned = False

    def change(self, moments: Moments) -> None:
        self.moments, self.known = moments, None

    def answer(self) -> Answer:
        if self.known is None:
            self.known = answer(self.layers, self.moments)
            if self.known.fallback is not None and not self.warned:
                self.warned = True
                warnings.warn(f"{self.known.fallback}; ridge answers instead", InContextWarning, stacklevel=3)
        return self.known


class InContextRegressor(RegressorMixin, BaseEstimator):
    """Linear regression by a pretrained linear transformer, from sums that can be added, taken out, faded and joined.

    Parameters
    ----------
    model : "diag", "full", a file of `linnet icl train`, or an ICLTransformer
        What turns the sums into weights.
    forget_factor : float, above 0 and at most 1
        Every example of `partial_fit` makes those before it count this much; 1 forgets nothing. `fit` sees rows in
        order as well.

    Attributes
    ----------
    coef_ [d], intercept_
        Of the linear rule in force, in the units of X and y.
    fallback_ : None or str
        Why ridge gave the weights in place of the transformer.
    count_ : float
        Examples in the sums; faded ones count less.
    """

    def __init__(self, model: str | os.PathLike[str] | ICLTransformer = "diag", *, forget_factor: float = 1.0) -> None:
        self.model = model
        self.forget_factor = forget_factor

    def fit(self, X: Any, y: Any) -> InContextRegressor:
        """Forget everything and add up X [n,d], y [n]."""
        return self._learn(X, y, fresh=True)

    def partial_fit(self, X: Any, y: Any) -> InContextRegressor:
        """Add X [n,d], y [n] to what is known; row by row or in batches is the same."""
        return self._learn(X, y, fresh=not hasattr(self, "memory_"))

    def forget(self, X: Any, y: Any) -> InContextRegressor:
        """Take rows out that were learned before: the oldest of a sliding window, one user's data.

        They must still count in full: rows from before a `decay` have faded and cannot be told apart.
        """
        check_is_fitted(self)
        if self.forget_factor != 1:
            raise ValueError(
                f"forget_factor is {self.forget_factor}, so old rows have faded and cannot be taken out; "
                "use forget_factor=1 with forget, or decay alone"
            )
        x, label = self._checked(X, y, reset=False)
        self.memory_.change(self.memory_.moments.remove(Moments.of(x, label)))
        return self

    def decay(self, factor: float) -> InContextRegressor:
        """Let every example so far count `factor` times as much, 0 to 1."""
        check_is_fitted(self)
        self.memory_.change(self.memory_.moments.decay(factor))
        return self

    def merge(self, other: InContextRegressor) -> InContextRegressor:
        """Take in what another fitted regressor has learned; it stays as it is."""
        check_is_fitted(self)
        check_is_fitted(other)
        self.memory_.change(self.memory_.moments.merge(other.memory_.moments))
        return self

    def predict(self, X: Any) -> Array:
        """[n] for X [n,d]."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        found = self.memory_.answer()
        return x @ found.coef + found.intercept

    @property
    def coef_(self) -> Array:
        return self._fitted().answer().coef

    @property
    def intercept_(self) -> float:
        return self._fitted().answer().intercept

    @property
    def fallback_(self) -> str | None:
        return self._fitted().answer().fallback

    @property
    def count_(self) -> float:
        return self._fitted().moments.n

    def save(self, path: str | os.PathLike[str]) -> None:
        """The sums and settings as one small safetensors file; a model that is no shipped one is not in it."""
        named = isinstance(self.model, str) and self.model in NAMES
        settings = {"model": self.model if named else None, "forget_factor": self.forget_factor}
        save_moments(path, self._fitted().moments, settings)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: str | os.PathLike[str] | ICLTransformer | None = None
    ) -> InContextRegressor:
        """The regressor of a file that `save` wrote; `model` in place of the shipped one it names."""
        moments, settings = load_moments(path)
        chosen = settings["model"] if model is None else model
        if chosen is None:
            raise ValueError(f"{path} was saved with a model of your own; give it again as model=")
        found = cls(chosen, forget_factor=settings["forget_factor"])
        found.memory_ = _Memory(found._layers(moments.d), moments)
        found.n_features_in_ = moments.d
        return found

    def _learn(self, X: Any, y: Any, *, fresh: bool) -> InContextRegressor:
        if not 0 < self.forget_factor <= 1:
            raise ValueError(f"forget_factor is {self.forget_factor}; accepted: above 0 and at most 1")
        if fresh:
            new = copy(self)  # nothing of the old fit is lost if this one is refused
            x, label = new._checked(X, y, reset=True)
            new.memory_ = _Memory(self._layers(x.shape[1]), Moments.zeros(x.shape[1]))
            self.__dict__ = new.__dict__
        else:
            x, label = self._checked(X, y, reset=False)
        before = self.memory_.moments.decay(self.forget_factor ** len(x))
        self.memory_.change(before.merge(Moments.of(x, label, self.forget_factor)))
        return self

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        x, label = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=True)
        return x, label.astype(np.float64)

    def _layers(self, d: int) -> Layers:
        model = self.model
        if not isinstance(model, ICLTransformer):
            model = pretrained(str(model)) if model in NAMES or not _is_file(model) else ICLTransformer.load(model)
        if d > model.config.d:
            raise ValueError(
                f"X has {d} features and this model was trained for {model.config.d}; choose {model.config.d} of them, "
                f"use sklearn's Ridge, or train one of your own with linnet icl train --d {d}"
            )
        return Layers(model)

    def _fitted(self) -> _Memory:
        check_is_fitted(self)
        return self.memory_


def _is_file(model: str | os.PathLike[str]) -> bool:
    """A path rather than a misspelt name: it exists, or it looks like one."""
    return Path(model).exists() or Path(model).suffix != "" or len(Path(model).parts) > 1
