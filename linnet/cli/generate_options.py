"""Groups of options of `linnet generate text`: how tokens are chosen, and how the model runs.

Nothing here imports torch, so that `--help` prints immediately.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

CHOICE = Group("Choice of tokens", sort_key=2)
RUNNING = Group("Running", sort_key=3)


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """Fields of linnet.generate.Sampling, applied in this order."""

    repetition_penalty: float = 1.0
    """Above 1: make tokens that already occur less likely."""
    temperature: float | None = None
    """Below 1 favours likely tokens; 0 always takes the most likely one. Default: 0.8."""
    top_k: int | None = None
    """Sample among the k most likely tokens."""
    top_p: float | None = None
    """Sample among the most likely tokens whose probabilities sum to this."""
    min_p: float | None = None
    """Sample among tokens at least this fraction as likely as the most likely one."""
    seed: int = 0
    """Seed of the random numbers; the same seed gives the same text."""


@dataclass(frozen=True, kw_only=True)
class RunningOptions:
    """Checkpoint, precision, backend and state files."""

    checkpoint: str | None = None
    """Of a run: best (by held-out loss, the default), newest, or a step such as 200."""
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    """Precision of the weights in each step: float32 is exact, the others are faster. Prompts are read in float32."""
    backend: Literal["auto", "native", "torch"] = "auto"
    """native, torch, or auto for the first of them that can run the model."""
    save_state: Path | None = None
    """Save the state at the end, after the prompt and every sampled token, to this file."""
    from_state: Path | None = None
    """Continue from a file that --save-state wrote; the prompt then follows that text."""


Choice = Annotated[ChoiceOptions | None, Parameter(name="*", group=CHOICE)]
Running = Annotated[RunningOptions | None, Parameter(name="*", group=RUNNING)]
