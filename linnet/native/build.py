"""Compile the native kernels: one C++ file, once per instruction set, linked into one plain shared library.

    kernels.cpp x {base, avx2, avx512} + api.cpp (chooses by cpuid) + load.cpp  ->  _linnet.so, a C ABI without Python.h

One build is safe on every machine of its architecture: only the baseline object runs where nothing better is present.
Standard library only and no import from the package, so `setup.py` and `./run` use it by path before torch is there.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARY = "_linnet.so"
CSRC = Path(__file__).resolve().parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")

COMMON = (
    "-std=c++17 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti"
    " -ffp-contract=fast -fno-math-errno -fno-trapping-math"
).split()
RELEASE = ["-O3"]
SANITIZE = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer".split()
# --as-needed drops the libstdc++ the C++ driver adds, which the kernels do not use; -s strips.
LINK = ["-s", "-Wl,--as-needed", "-static-libgcc"]
X86 = {
    "avx2": "-mavx2 -mfma -mf16c".split(),
    "avx512": "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma".split(),
}


class BuildError(RuntimeError):
    """The library could not be built; the message says why and what to do."""


def build(out_dir: str | Path, sanitize: bool = False) -> Path:
    """Build `_linnet.so` into `out_dir` and return its path. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="linnet-build-") as tmp, ThreadPoolExecutor(8) as pool:
        compile_flags, link_flags, isas = _probe(pool, Path(tmp), sanitize)
        units = [
            ("api.o", "api.cpp", [f"-DLINNET_HAVE_{isa.upper()}" for isa in isas]),
            ("load.o", "load.cpp", []),
            ("base.o", "kernels.cpp", ["-DLINNET_ISA=base"]),
            *((f"{isa}.o", "kernels.cpp", [f"-DLINNET_ISA={isa}", *flags]) for isa, flags in isas.items()),
        ]

        def compile_unit(unit: tuple[str, str, list[str]]) -> str:
            target, source, flags = unit
            _check([*compiler(), *compile_flags, *flags, "-c", str(CSRC / source), "-o", f"{tmp}/{target}"])
            return f"{tmp}/{target}"

        objects = list(pool.map(compile_unit, units))
        _check([*compiler(), "-shared", *compile_flags, *objects, "-o", f"{tmp}/{LIBRARY}", *link_flags])
        return _install(Path(tmp, LIBRARY), Path(out_dir).resolve() / LIBRARY)


def compiler() -> list[str]:
    """Return the C++ compiler command: $CXX, or the first of `COMPILERS` on the PATH."""
    named = os.environ.get("CXX")
    for command in [shlex.split(named)] if named else [[name] for name in COMPILERS]:
        if command and shutil.which(command[0]):
            return command
    looked = f"CXX={named!r}" if named else ", ".join(COMPILERS)
    raise BuildError(f"no C++ compiler found (looked for {looked}); install one, for example apt-get install g++")


def _probe(pool: ThreadPoolExecutor, tmp: Path, sanitize: bool) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Return flags for compiling, for linking, and of each instruction set, as far as this compiler accepts them."""
    source = tmp / "probe.cpp"
    source.write_text('extern "C" int probe() { return 0; }\n')
    isas = X86 if platform.machine().lower() in ("x86_64", "amd64") else {}  # NEON is the baseline of 64-bit ARM
    tried = [["-fopenmp"], SANITIZE if sanitize else LINK, *isas.values()]

    def accepts(index: int) -> bool:
        command = [*compiler(), "-fPIC", "-shared", *tried[index], str(source), "-o", str(tmp / f"probe{index}.so")]
        return _run(command).returncode == 0

    openmp, linking, *present = pool.map(accepts, range(len(tried)))
    if sanitize and not linking:
        raise BuildError(f"{compiler()[0]} cannot link with {shlex.join(SANITIZE)}; install its libasan and libubsan")
    flags = COMMON + (SANITIZE if sanitize else RELEASE) + (["-fopenmp"] if openmp else [])
    link = LINK if linking and not sanitize else []
    return flags, link, {isa: f for (isa, f), ok in zip(isas.items(), present, strict=True) if ok}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _check(command: list[str]) -> None:
    done = _run(command)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed with status {done.returncode}:\n{done.stderr.strip()[-4000:]}")


def _install(library: Path, out: Path) -> Path:
    """Rename into place: a process that has mapped the old file keeps it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(f".{os.getpid()}.part")
    shutil.copyfile(library, part)
    part.replace(out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the native kernels of linnet.")
    parser.add_argument("out_dir", type=Path, help=f"where {LIBRARY} goes")
    parser.add_argument("--sanitize", action="store_true", help="address and undefined-behaviour sanitizers")
    args = parser.parse_args()
    try:
        print(build(args.out_dir, sanitize=args.sanitize))
    except BuildError as error:
        sys.exit(f"native kernels not built: {error}")


if __name__ == "__main__":
    main()
