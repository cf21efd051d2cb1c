"""The in-context laboratory: linear transformers on noisy regression, each layer read as a step of an optimiser.

Vladymyrov et al. 2024, "Linear Transformers are Versatile In-Context Learners" (arXiv:2402.14180). The problem is
linnet.tasks.Regression, the models are linnet.models.ICLTransformer.
"""

from __future__ import annotations
