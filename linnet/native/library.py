"""Finds and loads the compiled kernels with ctypes, and keeps the reason when it cannot.

The library is a plain C ABI (csrc/linnet.h): every call takes one packed struct and returns a status. It is looked for
next to this file, or where LINNET_LIBRARY says; without it, or with LINNET_NO_NATIVE set, linnet runs on plain torch.
It runs the widest instruction set of the processor, or the one that LINNET_ISA names: base, avx2 or avx512.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

ABI = 6
CALL = struct.Struct("19q8q16q5q5d")  # linnet_call: pointers, sizes, strides, switches, coefficients
ICL = struct.Struct("15q17q9d")  # linnet_icl: pointers, sizes and switches, coefficients
ROWS = struct.Struct("10q9qd")  # linnet_rows: pointers, sizes and switches, eps
STATUS = {
    1: "an argument out of range",
    2: "no memory for its scratch space",
    3: "cu_seqlens that do not rise from 0 to T",
    4: "a position out of range",
}


def default_path() -> Path:
    return Path(os.environ.get("LINNET_LIBRARY") or Path(__file__).with_name("_linnet.so"))


@lru_cache(maxsize=1)
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    path = default_path()
    if os.environ.get("LINNET_NO_NATIVE"):
        return None, "LINNET_NO_NATIVE is set: unset it to use the native kernels"
    if not path.is_file():
        return None, f"no compiled library at {path.name}: install a C++ compiler and run `pip install -e .` again"
    try:
        lib = ctypes.CDLL(str(path))
        abi, size = int(lib.linnet_abi_version()), int(lib.linnet_call_size())
    except (OSError, AttributeError) as error:
        return None, f"{path.name} cannot be loaded ({error}): run `pip install -e .` again"
    if abi != ABI or size != CALL.size or int(lib.linnet_rows_size()) != ROWS.size:
        return None, f"{path.name} has ABI {abi} and this package wants {ABI}: run `pip install -e .` again"
    try:
        _declare(lib)
    except AttributeError as error:
        return None, f"{path.name} lacks a function of this package ({error}): run `pip install -e .` again"
    assert int(lib.linnet_icl_size()) == ICL.size
    isa = os.environ.get("LINNET_ISA")
    if isa and lib.linnet_use_isa(isa.encode()) != 0:
        raise ValueError(f"LINNET_ISA={isa!r} cannot run here; available: {', '.join(_isas(lib))}; or leave it unset")
    return lib, None


def _declare(lib: ctypes.CDLL) -> None:
    """What the functions take and return."""
    lib.linnet_isa.restype = lib.linnet_isas.restype = ctypes.c_char_p
    lib.linnet_use_isa.argtypes = [ctypes.c_char_p]
    for name in ("linnet_forward", "linnet_backward", "linnet_step"):
        getattr(lib, name).argtypes = [ctypes.c_char_p]
    lib.linnet_run_rows.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    lib.linnet_matmul.argtypes = [ctypes.c_char_p, *[ctypes.c_int64] * 4]
    lib.linnet_choose.argtypes = [ctypes.c_int64] * 7
    lib.linnet_read.argtypes = [ctypes.c_int64] * 4
    lib.linnet_model_sizes.argtypes = [ctypes.c_int64]
    lib.linnet_model_sizes.restype = lib.linnet_decode_scratch.restype = ctypes.c_int64
    lib.linnet_decode_scratch.argtypes = [ctypes.c_int64] * 4
    lib.linnet_icl_lanes.argtypes = [ctypes.c_int64]
    lib.linnet_icl_lanes.restype = lib.linnet_icl_size.restype = ctypes.c_int64
    lib.linnet_run_icl.argtypes = [ctypes.c_char_p]
    lib.linnet_decode_step.argtypes = lib.linnet_hold.argtypes = [ctypes.c_int64, ctypes.c_int64]
    lib.linnet_busy.argtypes = []


def _isas(lib: ctypes.CDLL) -> list[str]:
    """Names of the instruction sets that this build has and this processor runs, widest first."""
    return [str(name) for name in lib.linnet_isas().decode().split(",")]


def library() -> ctypes.CDLL | None:
    """The loaded library, or None; `reason()` says why."""
    return _load()[0]


def reason() -> str | None:
    """Why the library is not there; None when it is."""
    return _load()[1]


def use_isa(isa: str) -> None:
    """Run another instruction set of the library from now on: for tests and benchmarks."""
    lib = library()
    if lib is None or lib.linnet_use_isa(isa.encode()) != 0:
        raise ValueError(f"instruction set {isa!r} cannot run here; available: {', '.join(info()['isas']) or 'none'}")


def busy() -> bool:
    """Whether other programs want the cores, as last measured; threads then wait by sleeping."""
    lib = library()
    return lib is not None and bool(lib.linnet_busy())


@contextmanager
def waiting(how: str) -> Iterator[None]:
    """Let threads wait by "spin" or "sleep" in this block, whatever the load, or "auto": for tests and benchmarks."""
    held = {"auto": -1, "spin": 0, "sleep": 1}
    if how not in held:
        raise ValueError(f"waiting is {how!r}; accepted: {', '.join(held)}")
    import torch

    lib = library()
    if lib is not None:
        lib.linnet_hold(held[how], max(2, torch.get_num_threads()))
    try:
        yield
    finally:
        if lib is not None:
            lib.linnet_hold(-1, 2)


def info() -> dict[str, Any]:
    """What is loaded, for `linnet doctor`."""
    lib = library()
    found: dict[str, Any] = {
        "loaded": lib is not None,
        "reason": reason(),
        "path": str(default_path()),
        "abi_version": None,
        "isa": None,
        "isas": [],
        "openmp": None,
        "threads": None,
    }
    if lib is not None:
        import torch

        found |= {"abi_version": lib.linnet_abi_version(), "isa": lib.linnet_isa().decode()}
        found |= {"isas": _isas(lib), "openmp": bool(lib.linnet_openmp())}
        found["threads"] = torch.get_num_threads() if found["openmp"] else 1
    return found
