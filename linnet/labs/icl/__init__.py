"""The in-context laboratory: linear transformers on noisy regression, each layer read as a step of an optimiser.

Vladymyrov et al. 2024, "Linear Transformers are Versatile In-Context Learners" (arXiv:2402.14180). The problem is
`Regression`, the models are linnet.regress.ICLTransformer; the modules baselines, evaluate, recipes, recursion, verify
and explain study them. The estimator for your own data is linnet.regress.InContextRegressor.
"""

from __future__ import annotations

from .noise import PAPER_NOISE as PAPER_NOISE
from .noise import Noise as Noise
from .recursion import nearest_diag as nearest_diag
from .recursion import trace as trace
from .regression import Batch as Batch
from .regression import Regression as Regression
