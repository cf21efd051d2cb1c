"""IGNORE: the target of a position that is not scored. Data sources write it, losses and metrics skip it."""

from __future__ import annotations

IGNORE = -100  # as in torch's cross_entropy
