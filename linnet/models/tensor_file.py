"""A small file of tensors with a header: one safetensors file, written whole or not at all, read whole or refused.

    write_tensors(path, {"p": p, ...}, {"format": ..., "version": ..., ...})
    header, tensors = read_tensors(path)

What the header and the shapes must be, whoever wrote the file checks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..atomic import replacing


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Tensors, contiguous, and strings by name; a place that takes no file is an OSError."""
    with replacing(Path(path)) as new:
        try:
            save_file(tensors, new, metadata=header)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written ({error}); name another place") from None
        new.chmod(0o644)  # as any other file; some versions of safetensors write for the owner's eyes only


def read_tensors(
    path: str | os.PathLike[str], refuse: type[ValueError] = ValueError
) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    """(header, tensors) of a file that is there; one that is cut or of another kind raises `refuse`."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise refuse(f"{path} is not a whole safetensors file ({error}); copy it again") from None
