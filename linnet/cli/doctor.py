"""`linnet doctor`: show versions, the processor, the native kernels and the dispatch of typical shapes.

The facts are collected first, as plain values (`facts`), then printed, so the table and `--json` have the same content.
torch is imported inside the functions: the help of this command does not need it.
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

from ..processor import CPUINFO, cpu_flags, processor_name

REQUIRED = ("torch", "numpy", "safetensors", "cyclopts", "rich")
OPTIONAL = {  # package -> the extra that installs it
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
    "starlette": "serve",
    "redis": "redis",
}
INSTRUCTION_SETS = (
    "sse4_2 avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 amx_tile asimd sve"
).split()
CHECKED = "every extent is verified (LINNET_CHECK)"
UNCHECKED = "extents are not verified; for debugging, set LINNET_CHECK=1 to verify them on every call"
WAY_OUT = (
    "To get them: install a C++ compiler (Debian, Ubuntu: apt-get install g++) and install linnet again;"
    " until then everything runs on plain torch."
)
# The rows of the dispatch table: name, q_shape [B,T,H,D], dtype, feature map, causal.
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
    """Show what is installed, which backend and form run for typical shapes, and why.

    Parameters
    ----------
    json
        Print one JSON object instead of the tables, for a program or a bug report.
    """
    report = facts()
    if json:
        print(as_json(report))
    else:
        show(report, Console())


def facts() -> dict[str, Any]:
    """Return the content of the report as JSON values."""
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


def cpu(cpuinfo: Path = CPUINFO) -> dict[str, Any]:
    """Return the name, the number of logical cores and the relevant instruction sets (which only Linux lists)."""
    flags = cpu_flags(cpuinfo)
    return {
        "name": processor_name(cpuinfo),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
    }


def dispatch() -> list[dict[str, Any]]:
    """Return what `linnet.explain_dispatch` reports for each row of `TYPICAL`."""
    import torch

    from ..ops import explain_dispatch

    rows = []
    for name, shape, dtype, feature_map, causal in TYPICAL:
        choice = explain_dispatch(q_shape=shape, dtype=getattr(torch, dtype), feature_map=feature_map, causal=causal)
        case = {"case": name, "q_shape": list(shape), "dtype": dtype, "feature_map": feature_map, "causal": causal}
        rows.append({**case, "form": choice.form, "backend": choice.backend, "reason": choice.reason})
    return rows


def as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2)


def show(report: dict[str, Any], console: Console) -> None:
    """Print `facts` as tables."""
    console.print(two_columns(lines(report)))
    console.print(Text("\nDispatch of linear_attention by shape, q [B,T,H,D]", style="bold"))
    console.print(two_columns(dispatch_lines(report["dispatch"])))


def two_columns(rows: list[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text in rows:
        table.add_row(Text(name, style="bold"), Text(text, overflow="fold"))
    return table


def dispatch_lines(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    out = []
    for row in rows:
        case = f"{row['q_shape']} {row['dtype']} {row['feature_map']}" + ("" if row["causal"] else " bidirectional")
        out.append((row["case"], f"{case}: {row['form']} form, {row['backend']} backend\n{row['reason']}"))
    return out


def lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (name, text) of everything except the dispatch table."""
    processor, threads = report["cpu"], report["threads"]
    sets = (
        " ".join(processor["instruction_sets"])
        or f"not listed by this system; torch uses {processor['torch_capability']}"
    )
    out = [(name, value or "missing") for name, value in report["versions"].items()]
    out += [
        (name, entry["version"] or f"not installed; pip install 'linnet[{entry['extra']}]'")
        for name, entry in report["optional"].items()
    ]
    omp = threads["OMP_NUM_THREADS"]
    out += [
        ("processor", f"{processor['name']} ({processor['machine']}, {processor['cores']} logical cores)"),
        ("instructions", sets),
        ("threads", f"torch {threads['torch']}" + (f" (OMP_NUM_THREADS={omp})" if omp else "")),
    ]
    return out + native_lines(report["native"])


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
