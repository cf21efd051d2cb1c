"""What Linux says about this machine's processor; elsewhere the answers are empty.

cpuinfo()          -> {"model name": "...", "flags": "fpu sse ...", ...} of the first core
cpu_flags()        -> {"avx2", "avx512_bf16", ...}
processor_name()   -> "AMD EPYC 7763 64-Core Processor"
"""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def cpuinfo(path: Path = CPUINFO) -> dict[str, str]:
    """Return the fields of the first core, {} where the system has no such file."""
    fields: dict[str, str] = {}
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return fields
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def cpu_flags(path: Path = CPUINFO) -> frozenset[str]:
    """Return the instruction sets that the processor lists; empty if the system does not say."""
    fields = cpuinfo(path)
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())  # x86, or ARM


def processor_name(path: Path = CPUINFO) -> str:
    """Return the model name of the processor, or "unknown"."""
    return cpuinfo(path).get("model name") or platform.processor() or "unknown"
