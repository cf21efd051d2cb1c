"""`linnet train presets`: list the preset models with their sizes, or print every field of one."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table

from .common import FLAG

ABOUT = {
    "char-small": "characters; the default of train text",
    "char-6x256": "characters, larger",
    "digits": "8x8 digits; the default of train image",
    "mnist": "Katharopoulos et al. 2020, 4.2",
    "cifar10": "Katharopoulos et al. 2020, 4.2",
    "speech-small": "speech; the default of train speech",
    "speech": "Katharopoulos et al. 2020, 4.3",
    "speech-bilstm": "the Bi-LSTM that paper compares with",
    "stream-small": "numbers; the default of train stream",
    "mqar": "recall: Arora et al. 2023, ReBased",
    "rebased-150m": "Aksenov et al. 2024, 5.3, its shape",
}


def presets(name: str | None = None, *, json: Annotated[bool, FLAG] = False) -> None:
    """List the presets, or print one of them.

    Vocabulary, channels and lengths are taken from your data when you train; every other field is an option of
    `linnet train`, or stays as shown.

    Parameters
    ----------
    name
        Show every field of this preset, as JSON.
    json
        List the presets as JSON, with every field.
    """
    from ..models import PRESETS, preset

    if name is not None:
        print(json_format.dumps(preset(name).to_dict(), indent=2))
        return
    rows = {each: facts(each, PRESETS[each]) for each in sorted(PRESETS, key=list(ABOUT).index)}
    if json:
        print(json_format.dumps(rows, indent=2))
        return
    Console(highlight=False).print(table(rows))


def facts(name: str, config: Any) -> dict[str, Any]:
    """Return the row of a preset; a bidirectional model has no state."""
    from ..models import count_parameters, state_bytes

    state = state_bytes(config, 1_000) if config.causal else None
    about = {"about": ABOUT[name], "parameters": count_parameters(config), "state_bytes": state}
    return about | {"config": config.to_dict()}


def table(rows: dict[str, dict[str, Any]]) -> Table:
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    out.add_column("preset", no_wrap=True)
    out.add_column("parameters", justify="right", no_wrap=True)
    out.add_column("state bytes", justify="right", no_wrap=True)
    out.add_column("purpose", overflow="fold")
    for name, row in rows.items():
        state = "-" if row["state_bytes"] is None else f"{row['state_bytes']:,}"
        out.add_row(name, f"{row['parameters']:,}", state, row["about"])
    out.caption = "State: one sequence after 1,000 tokens. Every field of one: linnet train presets NAME"
    out.caption_justify = "left"
    return out
