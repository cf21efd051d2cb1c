"""The options of `linnet generate text` that belong together: how tokens are chosen, and what runs the model.

Nothing here imports torch, so that help comes at once.
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
    """Fields of linnet.generate.Sampling; filters in the order given here."""

    repetition_penalty: float = 1.0
    """Above 1: what was said already becomes less likely."""
    temperature: float | None = None
    """Below 1 keeps to what is likely, 0 takes the most likely token each time; 0.8 unless given."""
    top_k: int | None = None
    """Only among the k most likely tokens."""
    top_p: float | None = None
    """Only among the most likely tokens that together have this probability."""
    min_p: float | None = None
    """Only tokens at least this share as likely as the most likely one."""
    seed: int = 0
    """Another seed, another text; the same seed, the same text."""


@dataclass(frozen=True, kw_only=True)
class RunningOptions:
    """Checkpoint, precision, back end, and where states are kept."""

    checkpoint: str | None = None
    """Of a run: best (by held-out loss, unless given), newest, or a step such as 200."""
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    """Precision of the weights in the steps: less time per token, or exact; the prompt is read in float32."""
    backend: Literal["auto", "native", "torch"] = "auto"
    """native, torch, or auto for the first of them that can run the model."""
    save_state: Path | None = None
    """Keep what the model remembers at the end in this file: the prompt and every token sampled, all read."""
    from_state: Path | None = None
    """Go on from such a file; the prompt is then what comes next."""


Choice = Annotated[ChoiceOptions | None, Parameter(name="*", group=CHOICE)]
Running = Annotated[RunningOptions | None, Parameter(name="*", group=RUNNING)]
