"""Small safetensors files with a header and a checksum, written atomically.

    write_sealed(path, {"p": p, ...}, {"format": ..., ...})    adds version "2" and "crc32", as in a state file
    header, tensors = read_tensors(path)                       memory-mapped
    tensors = unsealed(path, header, tensors)                  verified copies

The caller checks its own header fields and shapes. Version "1" has no checksum; it is still read, with a warning.
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
READABLE = 0o644  # as other files; some versions of safetensors give only the owner access


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write contiguous tensors and header strings, atomically; raise OSError where no file can be written."""
    with replacing(Path(path)) as new:
        try:
            save_file(tensors, new, metadata=header or None)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written ({error}); free some space, or choose another path") from error
        new.chmod(READABLE)


def read_tensors(
    path: str | os.PathLike[str], refuse: type[ValueError] = ValueError
) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    """Return (header, tensors) of an existing file; raise `refuse` if it is truncated or of another kind."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise refuse(f"{path} is not a whole safetensors file ({error}); copy it again") from None


def write_sealed(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write as `write_tensors` does, with a checksum of header and tensors."""
    header = header | {"version": SEALED}
    write_tensors(path, tensors, header | {"crc32": crc32_of(header, tensors)})


def unsealed(
    path: str | os.PathLike[str],
    header: Mapping[str, str],
    tensors: Mapping[str, Tensor],
    refuse: type[ValueError] = ValueError,
) -> dict[str, Tensor]:
    """Return copies of the mapped tensors, so that the file may change or vanish; raise `refuse` for damage."""
    copies, crc32 = {name: value.clone() for name, value in tensors.items()}, header.get("crc32")
    if crc32 != (None if header.get("version") == PLAIN else crc32_of(header, copies)):
        raise refuse(f"{path} is damaged: crc32 {brief(crc32)} is not that of its content; copy it again")
    return copies


def note_if_plain(path: str | os.PathLike[str], header: Mapping[str, str]) -> None:
    """Warn if a file that passed all other checks has no checksum."""
    if header.get("version") == PLAIN:
        way_out = "load it and save it again to add one"
        warnings.warn(f"{path} was written by an older linnet without a checksum; {way_out}", FileWarning, stacklevel=3)
