"""A small file of tensors with a header: one safetensors file, written whole or not at all, read whole or refused.

    write_sealed(path, {"p": p, ...}, {"format": ..., ...})    adds version "2" and "crc32", that of a state file
    header, tensors = read_tensors(path)                       mapped from the file
    tensors = unsealed(path, header, tensors)                  copies, once they are what was written

What the header and the shapes must be, whoever wrote the file checks. Version "1" had no checksum: it is still read,
with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..atomic import replacing
from ..errors import FileWarning, brief
from ..ops.state_file import crc32_of

PLAIN, SEALED = VERSIONS = ("1", "2")  # without and with a checksum


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Tensors, contiguous, and strings by name; a place that takes no file is an OSError."""
    with replacing(Path(path)) as new:
        try:
            save_file(tensors, new, metadata=header or None)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written ({error}); make room, or name another place") from error
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


def write_sealed(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """`write_tensors`, with a checksum over the header and the tensors."""
    header = header | {"version": SEALED}
    write_tensors(path, tensors, header | {"crc32": crc32_of(header, tensors)})


def unsealed(
    path: str | os.PathLike[str],
    header: Mapping[str, str],
    tensors: Mapping[str, Tensor],
    refuse: type[ValueError] = ValueError,
) -> dict[str, Tensor]:
    """Return copies of what `read_tensors` found: the file may change or go away. Damage raises `refuse`."""
    copies, found = {name: value.clone() for name, value in tensors.items()}, header.get("crc32")
    if found != (None if header.get("version") == PLAIN else crc32_of(header, copies)):
        raise refuse(f"{path} is damaged: crc32 {brief(found)} is not that of its content; copy it again")
    return copies


def note_if_plain(path: str | os.PathLike[str], header: Mapping[str, str]) -> None:
    """Warn, once for each file, that a file which is otherwise good has no checksum."""
    if header.get("version") == PLAIN:
        way_out = "load it and save it again to add one"
        warnings.warn(f"{path} was written by an older linnet without a checksum; {way_out}", FileWarning, stacklevel=3)
