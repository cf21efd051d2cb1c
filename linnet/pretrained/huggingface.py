"""Read a Hugging Face folder of any architecture in ARCHITECTURES, chosen by `model_type` in its config.json.

The configuration is checked before any weight is read: a field that linnet cannot follow is refused by its name
(fields.py), and so is a folder that has pickled weights only. To add an architecture, write one file like mamba.py and
add it to the table.
"""

from __future__ import annotations

from pathlib import Path

from ..data.tokenizer import FILE, Tokenizer, load_tokenizer
from ..errors import brief
from ..models.weights_file import check_layers
from .architecture import Architecture, Weights
from .bamba import BAMBA, GRANITE
from .fields import Fields
from .folder import CONFIG, drop_tied, open_tensors, read_values
from .llama import LLAMA
from .mamba import FALCON_MAMBA, MAMBA
from .mamba2 import MAMBA2
from .qwen3_next import QWEN3_5_TEXT, QWEN3_NEXT
from .rwkv import RWKV
from .rwkv7 import RWKV7

KNOWN = (LLAMA, MAMBA, MAMBA2, FALCON_MAMBA, BAMBA, GRANITE, QWEN3_NEXT, QWEN3_5_TEXT, RWKV, RWKV7)
ARCHITECTURES: dict[str, Architecture] = {one.name: one for one in KNOWN}


def read(folder: Path) -> Weights:
    """Return the folder's weights, opened but not yet read."""
    where, values = str(folder / CONFIG), read_values(folder / CONFIG)
    architecture = _architecture(where, values.get("model_type"))
    config = architecture.config(where, values)
    shapes, fetch = open_tensors(folder, architecture.dropped)
    check_layers(config, len(shapes), str(folder))
    parts = list(architecture.parts(config))
    if architecture.scaled is not None:
        parts = list(architecture.scaled(Fields(where, values), parts))
    if not any(architecture.outer.head in part.theirs for part in parts):
        drop_tied(folder, shapes, fetch, architecture.outer)

    def tokenizer() -> Tokenizer | None:
        return load_tokenizer(folder) if (folder / FILE).is_file() else None

    return Weights(str(folder), config, lambda _: parts, shapes, fetch, tokenizer)


def _architecture(where: str, name: object) -> Architecture:
    accepted = ", ".join(map(repr, sorted(ARCHITECTURES)))
    if name is None:
        raise ValueError(f"{where} has no model_type; accepted: a Hugging Face folder of model_type {accepted}")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(f"{where}: model_type is {brief(name)}; accepted: {accepted}; this is another architecture")
    return ARCHITECTURES[name]
