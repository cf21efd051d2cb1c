"""The build of the native library, on small sources of its own: what it makes, what it leaves out, what it says."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from linnet.native import build

KERNELS = """
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
extern "C" int JOIN(kernel_, LINNET_ISA)(int x) { return x + 1; }
"""
API = """
#define EXPORT extern "C" __attribute__((visibility("default")))
extern "C" int kernel_base(int);
EXPORT int linnet_abi_version(void) { return kernel_base(41); }
EXPORT int built(void) {
    int out = 0;
#ifdef LINNET_HAVE_AVX2
    out |= 1;
#endif
#ifdef LINNET_HAVE_AVX512
    out |= 2;
#endif
    return out;
}
"""


def has_compiler() -> bool:
    try:
        return bool(build.compiler())
    except build.BuildError:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler here")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "kernels.cpp").write_text(KERNELS)
    (folder / "api.cpp").write_text(API)
    (folder / "load.cpp").write_text("")
    monkeypatch.setattr(build, "CSRC", folder)
    return folder


@needs_compiler
def test_builds_one_small_library_with_a_c_abi(sources: Path, tmp_path: Path) -> None:
    path = build.build(tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "_linnet.so"
    assert ctypes.CDLL(str(path)).linnet_abi_version() == 42
    assert not hasattr(ctypes.CDLL(str(path)), "kernel_base")  # hidden: only what api.cpp exports is seen
    assert os.listdir(path.parent) == ["_linnet.so"]


@needs_compiler
def test_a_variant_the_compiler_refuses_is_left_out(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(build, "X86", {"avx2": [], "avx512": ["-mno-such-instructions"]})
    assert ctypes.CDLL(str(build.build(tmp_path / "x86"))).built() == 1
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert ctypes.CDLL(str(build.build(tmp_path / "arm"))).built() == 0


@needs_compiler
def test_a_mistake_in_the_sources_is_told_in_the_compilers_words(sources: Path, tmp_path: Path) -> None:
    (sources / "kernels.cpp").write_text("int f() { return no_such_name; }")
    with pytest.raises(build.BuildError, match="no_such_name"):
        build.build(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("cxx", "path"), [("no-such-compiler", os.defpath), ("", "")])
def test_no_compiler_is_a_build_error_with_the_way_out(
    cxx: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", cxx)
    monkeypatch.setenv("PATH", path or str(tmp_path))
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler found .*apt-get install g\+\+"):
        build.build(tmp_path)


@needs_compiler
@pytest.mark.skipif(bool(os.environ.get("LINNET_NO_NATIVE")), reason="left out on purpose")
def test_where_there_is_a_compiler_the_library_is_built_and_loads() -> None:
    """Otherwise a kernel that does not compile would leave every test green, on plain torch."""
    from linnet.native import library

    info = library.info()
    assert info["loaded"], info["reason"]
