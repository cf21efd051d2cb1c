"""Find and load the compiled kernels with ctypes, and keep the reason when that fails.

The library is a plain C ABI (csrc/linnet.h): a function takes one struct and returns a status. It is looked for next to
this file, or at the path in LINNET_LIBRARY. At load, its ABI number, its functions and the layout of every struct
(names, kinds, offsets) are compared with structs.py, and a library that differs is not used. Without one, or with
LINNET_NO_NATIVE set, linnet runs on plain torch. The widest instruction set of the processor is used, or the one that
LINNET_ISA names: base, avx2 or avx512.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import structs
from .abi import STRUCTS, Call, describe, difference

ABI = 9
AGAIN = "run `pip install -e .` again"
STATUS = {
    1: "an argument out of range",
    2: "no memory for its scratch space",
    3: "cu_seqlens that do not rise from 0 to T",
    4: "a position out of range",
}
LONG, TEXT = ctypes.c_int64, ctypes.c_char_p
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {  # what is not a Call of structs.py: returns, takes
    "linnet_isa": (TEXT, []),
    "linnet_isas": (TEXT, []),
    "linnet_use_isa": (ctypes.c_int, [TEXT]),
    "linnet_openmp": (ctypes.c_int, []),
    "linnet_busy": (ctypes.c_int, []),
    "linnet_hold": (ctypes.c_int, [LONG, LONG]),  # busy, threads
    "linnet_read": (ctypes.c_int, [LONG] * 4),  # address, bytes, threads, address of a sink
    "linnet_icl_lanes": (LONG, [LONG]),  # wide
    "linnet_decode_scratch": (LONG, [ctypes.POINTER(structs.Model), LONG, LONG, LONG]),  # model, B, threads, longest
    "linnet_decode_step": (ctypes.c_int, [ctypes.POINTER(structs.Decode), ctypes.POINTER(structs.Model)]),
}


def default_path() -> Path:
    return Path(os.environ.get("LINNET_LIBRARY") or Path(__file__).with_name("_linnet.so"))


@lru_cache(maxsize=1)
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    path = default_path()
    if os.environ.get("LINNET_NO_NATIVE"):
        return None, "LINNET_NO_NATIVE is set: unset it to use the native kernels"
    if not path.is_file():
        return None, f"no compiled library at {path.name}: install a C++ compiler and {AGAIN}"
    try:
        lib = ctypes.CDLL(str(path))
        abi = int(lib.linnet_abi_version())
    except (OSError, AttributeError) as error:
        return None, f"{path.name} cannot be loaded ({error}): {AGAIN}"
    if (why := _mismatch(lib, abi)) is not None:
        return None, f"{path.name} {why}: {AGAIN}"
    isa = os.environ.get("LINNET_ISA")
    if isa and lib.linnet_use_isa(isa.encode()) != 0:
        raise ValueError(f"LINNET_ISA={isa!r} cannot run here; available: {', '.join(_isas(lib))}; or leave it unset")
    return lib, None


def _mismatch(lib: ctypes.CDLL, abi: int) -> str | None:
    """Declare what the functions take and return; return in which way they are not those of this package."""
    if abi != ABI:
        return f"has ABI {abi} and this package wants {ABI}"
    try:
        for name, (returns, takes) in FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = returns, takes
        for call in STRUCTS.values():
            if issubclass(call, Call):
                getattr(lib, call.function).argtypes = [ctypes.c_char_p]
        lib.linnet_layouts.restype = ctypes.c_char_p
        layouts = lib.linnet_layouts().decode()
    except AttributeError as error:
        return f"lacks a function of this package ({error})"
    where = difference(layouts, describe(STRUCTS.values()))
    return None if where is None else f"was built from other structs than this package: {where}"


def _isas(lib: ctypes.CDLL) -> list[str]:
    """Return the instruction sets that this build has and this processor runs, widest first."""
    return [str(name) for name in lib.linnet_isas().decode().split(",")]


def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None; `reason()` says why."""
    return _load()[0]


def reason() -> str | None:
    """Return why the library is not loaded; None when it is."""
    return _load()[1]


def refused(function: str, status: int) -> RuntimeError:
    """Return the error for a call that the library has refused with this status."""
    return RuntimeError(f"{function} refused the call: {STATUS.get(status, status)}")


def use_isa(isa: str) -> None:
    """Run another instruction set of the library from now on: for tests and benchmarks."""
    lib = library()
    if lib is None or lib.linnet_use_isa(isa.encode()) != 0:
        raise ValueError(f"instruction set {isa!r} cannot run here; available: {', '.join(info()['isas']) or 'none'}")


def busy() -> bool:
    """Return whether other programs want the cores, as last measured; threads then wait by sleeping."""
    lib = library()
    return lib is not None and bool(lib.linnet_busy())


@contextmanager
def waiting(how: str) -> Iterator[None]:
    """Make threads wait by "spin" or "sleep" in this block whatever the load, or "auto": for tests and benchmarks."""
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
    """Return what is loaded, for `linnet doctor`."""
    lib = library()
    about: dict[str, Any] = {
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

        about |= {"abi_version": lib.linnet_abi_version(), "isa": lib.linnet_isa().decode()}
        about |= {"isas": _isas(lib), "openmp": bool(lib.linnet_openmp())}
        about["threads"] = torch.get_num_threads() if about["openmp"] else 1
    return about
