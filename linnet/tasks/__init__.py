"""Tasks: synthetic data with analytic answers, drawn from a generator the caller passes in."""

from __future__ import annotations

from .gram import Gram as Gram
from .noise import PAPER_NOISE as PAPER_NOISE
from .noise import Noise as Noise
from .regression import Batch as Batch
from .regression import Regression as Regression
