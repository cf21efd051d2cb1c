"""Facts about the processor: the first core counts, and a system without the file has no facts."""

from __future__ import annotations

from pathlib import Path

from linnet.processor import cpu_flags, cpuinfo, processor_name

X86 = "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor\t: 1\nmodel name\t: Other\n"


def test_the_first_core_counts(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(X86)
    assert cpuinfo(file)["model name"] == processor_name(file) == "Fast One"
    assert cpu_flags(file) == {"fpu", "avx2", "avx512_bf16"}


def test_arm_lists_features(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert cpu_flags(file) == {"fp", "asimd", "sve"}


def test_without_the_file_there_are_no_facts(tmp_path: Path) -> None:
    assert cpuinfo(tmp_path / "none") == {}
    assert cpu_flags(tmp_path / "none") == frozenset()
    assert processor_name(tmp_path / "none")
