"""The options of `linnet eval --fewshot`: which question sets, how many examples before each question.

Nothing here imports torch, so that `--help` prints immediately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from .common import SEVERAL

FEW_SHOT = Group("Few-shot", sort_key=2)


@dataclass(frozen=True, kw_only=True)
class FewShotOptions:
    """The question sets and how they are presented."""

    fewshot: Annotated[list[str] | None, SEVERAL] = None
    """Question sets, such as piqa lambada; all of them if no name follows. Several models are shown side by side."""
    shots: Annotated[tuple[int, ...], SEVERAL] = (0, 1, 5)
    """How many examples precede each question; one table row for each number."""
    limit: int = 100
    """How many items of each set to use, from the first; 0 uses all."""
    seed: int = 0
    """Seed of the choice of examples; every model sees the same ones."""
    context: int | None = None
    """Longest prompt in tokens; a longer one loses its start. Default: the length the model was trained on."""


FewShot = Annotated[FewShotOptions | None, Parameter(name="*", group=FEW_SHOT)]
