"""InContextRegressor: a pretrained linear transformer as a scikit-learn regressor that learns by updating sums.

    InContextRegressor().fit(X, y).predict(X_new)          X [n,d] with d up to the model's 10, y [n]
    partial_fit (stream), forget (remove rows), decay (fade), merge (another device's sums), save / load

Learning only updates the running sums of moments.py; the transformer turns them into weights at the first `predict`
after a change, without solving a system (adapt.py). If its answer cannot be trusted, ridge is used instead: `fallback_`
says why, and an InContextWarning is issued once per fit. Only this file needs scikit-learn.
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

from .adapt import Answer, Layers, answer
from .model import ICLTransformer
from .moments import Array, Moments
from .shipped import NAMES, pretrained
from .state_file import load_moments, save_moments


class InContextWarning(UserWarning):
    """Ridge was used in place of the transformer's answer."""


class _Memory:
    """The sums and the answer computed from them on first use; `warned` once per fit."""

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
                warnings.warn(f"{self.known.fallback}; ridge is used instead", InContextWarning, stacklevel=3)
        return self.known


class InContextRegressor(RegressorMixin, BaseEstimator):
    """Linear regression by a pretrained linear transformer, from sums that support adding, removing, fading, merging.

    Parameters
    ----------
    model : "diag", "full", a file of `linnet icl train`, or an ICLTransformer
        The model that turns the sums into weights.
    forget_factor : float, above 0 and at most 1
        Each new example multiplies the weight of all earlier ones by this factor; 1 forgets nothing. The order of rows
        matters in `fit` too.

    Attributes
    ----------
    coef_ [d], intercept_
        Weights of the current linear rule, in the units of X and y.
    fallback_ : None or str
        Why ridge computed the weights in place of the transformer.
    count_ : float
        Number of examples in the sums; faded ones count less.
    """

    def __init__(self, model: str | os.PathLike[str] | ICLTransformer = "diag", *, forget_factor: float = 1.0) -> None:
        self.model = model
        self.forget_factor = forget_factor

    def fit(self, X: Any, y: Any) -> InContextRegressor:
        """Fit to X [n,d], y [n], discarding earlier examples."""
        return self._learn(X, y, fresh=True)

    def partial_fit(self, X: Any, y: Any) -> InContextRegressor:
        """Add the examples X [n,d], y [n]; row by row and in batches give the same result."""
        return self._learn(X, y, fresh=not hasattr(self, "memory_"))

    def forget(self, X: Any, y: Any) -> InContextRegressor:
        """Remove rows that were learned before: the oldest of a sliding window, one user's data.

        They must still have full weight: rows from before a `decay` cannot be removed.
        """
        check_is_fitted(self)
        if self.forget_factor != 1:
            raise ValueError(
                f"forget_factor is {self.forget_factor}, so old rows have faded and cannot be removed; "
                "use forget_factor=1 with forget, or decay alone"
            )
        x, label = self._checked(X, y, reset=False)
        self.memory_.change(self.memory_.moments.remove(Moments.of(x, label)))
        return self

    def decay(self, factor: float) -> InContextRegressor:
        """Multiply the weight of every example so far by `factor`, from 0 to 1."""
        check_is_fitted(self)
        self.memory_.change(self.memory_.moments.decay(factor))
        return self

    def merge(self, other: InContextRegressor) -> InContextRegressor:
        """Add the examples of another fitted regressor, which is not changed."""
        check_is_fitted(self)
        check_is_fitted(other)
        self.memory_.change(self.memory_.moments.merge(other.memory_.moments))
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions [n] for X [n,d]."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        rule = self.memory_.answer()
        return x @ rule.coef + rule.intercept

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
        """Save the sums and settings as one small safetensors file; a model that is not shipped is not included."""
        named = isinstance(self.model, str) and self.model in NAMES
        settings = {"model": self.model if named else None, "forget_factor": self.forget_factor}
        save_moments(path, self._fitted().moments, settings)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: str | os.PathLike[str] | ICLTransformer | None = None
    ) -> InContextRegressor:
        """Load a regressor that `save` wrote; `model` replaces the shipped one it names."""
        moments, settings = load_moments(path)
        chosen = settings["model"] if model is None else model
        if chosen is None:
            raise ValueError(f"{path} was saved with a model that is not shipped; pass that model as model=")
        regressor = cls(chosen, forget_factor=settings["forget_factor"])
        regressor.memory_ = _Memory(regressor._layers(moments.d), moments)
        regressor.n_features_in_ = moments.d
        return regressor

    def _learn(self, X: Any, y: Any, *, fresh: bool) -> InContextRegressor:
        if not 0 < self.forget_factor <= 1:
            raise ValueError(f"forget_factor is {self.forget_factor}; accepted: above 0 and at most 1")
        if fresh:
            new = copy(self)  # keeps the old fit if this one is refused
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
                f"use sklearn's Ridge, or train a model with linnet icl train --d {d}"
            )
        return Layers(model)

    def _fitted(self) -> _Memory:
        check_is_fitted(self)
        return self.memory_


def _is_file(model: str | os.PathLike[str]) -> bool:
    """Return True for a path, which exists or looks like one, rather than a misspelt name."""
    return Path(model).exists() or Path(model).suffix != "" or len(Path(model).parts) > 1
