"""The options of `linnet eval --fewshot`, which asks language models questions after a few examples.

Nothing here imports torch, so that help comes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

FEW_SHOT = Group("Few-shot", sort_key=2)
SEVERAL = Parameter(consume_multiple=True, negative="")


@dataclass(frozen=True, kw_only=True)
class FewShotOptions:
    """What is asked, and of how many items."""

    fewshot: Annotated[list[str] | None, SEVERAL] = None
    """Ask questions of these sets, such as piqa lambada; all sets where none is named. Several models: side by side."""
    shots: Annotated[tuple[int, ...], SEVERAL] = (0, 1, 5)
    """How many examples stand before each question, one table row for each number."""
    limit: int = 100
    """Items of each set, from the first; 0 takes all."""
    seed: int = 0
    """Which examples are drawn; every model sees the same."""
    context: int | None = None
    """Tokens a model reads at most, the start of a longer prompt is cut; as many as it was trained on unless given."""


FewShot = Annotated[FewShotOptions | None, Parameter(name="*", group=FEW_SHOT)]
