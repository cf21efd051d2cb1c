"""`linnet train presets`: the models by name, how large they are, and with a name everything that is in one."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

ABOUT = {
    "char-small": "characters; train text starts here",
    "char-6x256": "characters, larger",
    "digits": "8x8 digits; train image starts here",
    "mnist": "Katharopoulos et al. 2020, 4.2",
    "cifar10": "Katharopoulos et al. 2020, 4.2",
    "speech-small": "speech; train speech starts here",
    "speech": "Katharopoulos et al. 2020, 4.3",
    "speech-bilstm": "the Bi-LSTM that paper compares with",
    "stream-small": "numbers; train stream starts here",
    "mqar": "recall: Arora et al. 2023, ReBased",
    "rebased-150m": "Aksenov et al. 2024, 5.3, by shape",
}


def presets(name: str | None = None, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the presets, or show one whole.

    Vocabulary, channels and lengths are those of your data once there are some; every other field is an option of
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
    found = {each: facts(each, PRESETS[each]) for each in sorted(PRESETS, key=list(ABOUT).index)}
    if json:
        print(json_format.dumps(found, indent=2))
        return
    Console(highlight=False).print(table(found))


def facts(name: str, config: Any) -> dict[str, Any]:
    """What the list says of a preset; a model that reads both ways has no state."""
    from ..models import count_parameters, state_bytes

    state = state_bytes(config, 1_000) if config.causal else None
    about = {"about": ABOUT[name], "parameters": count_parameters(config), "state_bytes": state}
    return about | {"config": config.to_dict()}


def table(found: dict[str, dict[str, Any]]) -> Table:
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    out.add_column("preset", no_wrap=True)
    out.add_column("parameters", justify="right", no_wrap=True)
    out.add_column("state bytes", justify="right", no_wrap=True)
    out.add_column("what it is for", overflow="fold")
    for name, row in found.items():
        state = "-" if row["state_bytes"] is None else f"{row['state_bytes']:,}"
        out.add_row(name, f"{row['parameters']:,}", state, row["about"])
    out.caption = "State: one sequence after 1,000 tokens. See one whole: linnet train presets NAME"
    out.caption_justify = "left"
    return out
