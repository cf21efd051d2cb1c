"""Compile the native kernels, once per instruction set, and link them into one plain shared library.

    {linear, nn, ...}.cpp x {base, avx2, avx512} + api.cpp (chooses by cpuid) + load.cpp  ->  _linnet.so, a plain C ABI

One build is safe on every machine of its architecture: only the baseline object runs where nothing better is present.
Standard library only and no import from the package, so `setup.py` and `./run` use it by path before torch is there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
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
ONCE = ("api.cpp", "load.cpp")  # every other source is compiled for each instruction set

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


def build(out_dir: str | Path, sanitize: bool = False, objects: str | Path | None = None) -> Path:
    """Build `_linnet.so` into `out_dir` and return its path. Raises BuildError.

    `objects` is a folder that keeps compiled objects: what has not changed is not compiled again.
    """
    with tempfile.TemporaryDirectory(prefix="linnet-build-") as tmp, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        compile_flags, link_flags, isas = _probe(pool, Path(tmp), sanitize)
        sets: dict[str, list[str]] = {"base": [], **isas}
        units = [
            ("api.o", "api.cpp", [f"-DLINNET_HAVE_{isa.upper()}" for isa in isas]),
            ("load.o", "load.cpp", []),
            *(
                (f"{source.stem}.{isa}.o", source.name, [f"-DLINNET_ISA={isa}", *flags])
                for isa, flags in sets.items()
                for source in sorted(CSRC.glob("*.cpp"))
                if source.name not in ONCE
            ),
        ]

        def compile_unit(unit: tuple[str, str, list[str]]) -> str:
            target, source, flags = unit
            command = [*compiler(), *compile_flags, *flags, "-c", str(CSRC / source)]
            if objects is None:
                _check([*command, "-o", f"{tmp}/{target}"])
                return f"{tmp}/{target}"
            kept = Path(objects).resolve() / f"{target}.{_fingerprint(command)}"
            if not kept.exists():
                _check([*command, "-o", f"{tmp}/{target}"])
                _install(Path(tmp, target), kept)
            return str(kept)

        compiled = list(pool.map(compile_unit, units))
        _check([*compiler(), "-shared", *compile_flags, *compiled, "-o", f"{tmp}/{LIBRARY}", *link_flags])
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


def _fingerprint(command: list[str]) -> str:
    """Return a name for what a command compiles: the source with everything it includes, and the flags."""
    done = _check([*command, "-E", "-P"])
    return hashlib.sha256(json.dumps([command[:-1], done.stdout]).encode()).hexdigest()[:16]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _check(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = _run(command)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed with status {done.returncode}:\n{done.stderr.strip()[-4000:]}")
    return done


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
    parser.add_argument("--objects", type=Path, help="a folder that keeps compiled objects, for quicker builds later")
    args = parser.parse_args()
    try:
        print(build(args.out_dir, sanitize=args.sanitize, objects=args.objects))
    except BuildError as error:
        sys.exit(f"native kernels not built: {error}")


if __name__ == "__main__":
    main()
