"""Questions that reviews of the three papers leave open: kernels by task, short sequences, other attention types."""

from __future__ import annotations

from ..claim import Claim
from . import approximation, attention_types, kernel_task, short

CLAIMS: tuple[Claim, ...] = (kernel_task.CLAIM, short.CLAIM, attention_types.CLAIM, approximation.CLAIM)
