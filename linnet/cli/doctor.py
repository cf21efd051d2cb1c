"""`linnet doctor`: what is installed, what this processor offers, whether the native kernels run, and what is chosen.

Facts are gathered first, as plain values (`facts`), then printed: the table and `--json` say the same thing.
torch is imported inside the functions, so that this file can be read for its help without it.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

REQUIRED = ("torch", "numpy", "safetensors", "cyclopts", "rich")
OPTIONAL = {  # package -> the extra that brings it
    "tokenizers": "train",
    "tensorboard": "train",
    "soundfile": "audio",
    "pillow": "vision",
    "matplotlib": "report",
    "transformers": "hf",
    "lm-eval": "eval",
    "gguf": "gguf",
    "scikit-learn": "sklearn",
    "ray": "sweep",
}
INSTRUCTION_SETS = (
    "sse4_2 avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 amx_tile asimd sve"
).split()
CHECKED = "every extent is verified (LINNET_CHECK)"
UNCHECKED = "extents are not verified; LINNET_CHECK=1 in the environment does so on every call, for debugging"
WAY_OUT = (
    "To get them: install a C++ compiler (Debian, Ubuntu: apt-get install g++) and install linnet again;"
    " until then everything runs on plain torch."
)
# What the table of choices shows: name, q_shape [B,T,H,D], dtype, feature map, causal.
TYPICAL = (
    ("one token", (1, 1, 8, 64), "float32", "elu", True),
    ("short prompt", (1, 128, 8, 64), "float32", "elu", True),
    ("training batch", (4, 2048, 8, 64), "float32", "elu", True),
    ("long document", (1, 32768, 8, 64), "float32", "elu", True),
    ("both directions", (4, 2048, 8, 64), "float32", "elu", False),
    ("quadratic kernel", (4, 2048, 8, 16), "float32", "taylor", True),
    ("half precision", (4, 2048, 8, 64), "bfloat16", "elu", True),
    ("double precision", (4, 2048, 8, 64), "float64", "elu", True),
)


def doctor(*, json: bool = False) -> None:
    """Show what is installed, which back end and form would run for typical shapes, and why.

    Parameters
    ----------
    json
        Print one JSON object instead of the tables, for a program or a bug report.
    """
    found = facts()
    if json:
        print(as_json(found))
    else:
        show(found, Console())


def facts() -> dict[str, Any]:
    """Everything `doctor` knows, as values that JSON can hold."""
    import torch

    from ..native import gate, library

    native = library.info() | {"checked": gate.CHECK}
    path = native["path"]
    size = Path(path).stat().st_size if path and Path(path).is_file() else None
    return {
        "versions": versions(),
        "optional": {name: {"version": installed(name), "extra": extra} for name, extra in OPTIONAL.items()},
        "cpu": {**cpu(), "torch_capability": torch.backends.cpu.get_cpu_capability()},
        "threads": {"torch": torch.get_num_threads(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        "native": {**native, "size": size},
        "dispatch": dispatch(),
    }


def versions() -> dict[str, str | None]:
    from .. import __version__

    return {"linnet": __version__, "python": platform.python_version(), **{name: installed(name) for name in REQUIRED}}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Name, number of logical cores and the instruction sets that matter here (Linux tells them; others do not)."""
    fields: dict[str, str] = {}
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return {
        "name": fields.get("model name") or platform.processor() or "unknown",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
    }


def dispatch() -> list[dict[str, Any]]:
    """What `linnet.explain_dispatch` answers for each row of `TYPICAL`."""
    import torch

    from ..ops import explain_dispatch

    rows = []
    for name, shape, dtype, feature_map, causal in TYPICAL:
        choice = explain_dispatch(q_shape=shape, dtype=getattr(torch, dtype), feature_map=feature_map, causal=causal)
        asked = {"case": name, "q_shape": list(shape), "dtype": dtype, "feature_map": feature_map, "causal": causal}
        rows.append({**asked, "form": choice.form, "backend": choice.backend, "reason": choice.reason})
    return rows


def as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2)


def show(found: dict[str, Any], console: Console) -> None:
    """Print `facts` for a reader."""
    console.print(two_columns(lines(found)))
    console.print(Text("\nWhat linear_attention would run, q [B,T,H,D]", style="bold"))
    console.print(two_columns(choice_lines(found["dispatch"])))


def two_columns(rows: list[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text in rows:
        table.add_row(Text(name, style="bold"), Text(text, overflow="fold"))
    return table


def choice_lines(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    out = []
    for row in rows:
        asked = f"{row['q_shape']} {row['dtype']} {row['feature_map']}" + ("" if row["causal"] else " bidirectional")
        out.append((row["case"], f"{asked}: {row['form']} form, {row['backend']} back end\n{row['reason']}"))
    return out


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) for everything but the table of choices."""
    processor, threads = found["cpu"], found["threads"]
    sets = (
        " ".join(processor["instruction_sets"])
        or f"not listed by this system; torch uses {processor['torch_capability']}"
    )
    out = [(name, value or "missing") for name, value in found["versions"].items()]
    out += [
        (name, entry["version"] or f"not installed; pip install 'linnet[{entry['extra']}]' brings it")
        for name, entry in found["optional"].items()
    ]
    omp = threads["OMP_NUM_THREADS"]
    out += [
        ("processor", f"{processor['name']} ({processor['machine']}, {processor['cores']} logical cores)"),
        ("instructions", sets),
        ("threads", f"torch {threads['torch']}" + (f" (OMP_NUM_THREADS={omp})" if omp else "")),
    ]
    return out + native_lines(found["native"])


def native_lines(native: dict[str, Any]) -> list[tuple[str, str]]:
    if not native["loaded"]:
        return [("native kernels", f"off: {native['reason']}"), ("", WAY_OUT)]
    threads = f"threads: {native['threads']}" if native["openmp"] else "one thread: built without OpenMP"
    size = f"{native['size'] / 1024:.0f} KB" if native["size"] else "size unknown"
    return [
        ("native kernels", f"on: {native['isa']} (in this build: {', '.join(native['isas'])}), {threads}"),
        ("native library", f"{native['path']} ({size}, ABI {native['abi_version']})"),
        ("native calls", CHECKED if native.get("checked") else UNCHECKED),
    ]
