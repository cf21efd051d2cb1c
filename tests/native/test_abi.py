"""The C ABI by names: both sides declare the same structs, and a library with any other is refused with the field."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from linnet.native import abi, build, library, nn, structs
from linnet.native.abi import STRUCTS, Call, Struct, describe, difference
from tests.native.test_build import needs_compiler
from tests.ops.rows import needs_library

AGAIN = "run `pip install -e .` again"
STUB = """
#include <stdlib.h>
int linnet_abi_version(void) { return atoi(getenv("STUB_ABI")); }
const char *linnet_layouts(void) { return getenv("STUB_LAYOUTS"); }
const char *linnet_isas(void) { return "stub"; }
const char *linnet_isa(void) { return "stub"; }
"""
DONE = {"linnet_isas", "linnet_isa"}  # of the functions, in STUB itself

Load = Callable[..., str | None]


def functions() -> set[str]:
    return {*library.FUNCTIONS, *(call.function for call in calls())}


def calls() -> list[type[Call]]:
    return [struct for struct in STRUCTS.values() if issubclass(struct, Call)]


def compiled(folder: Path, names: set[str]) -> Path:
    """A library with these functions, which do nothing, and whose ABI and layouts the environment gives."""
    source = folder / "stub.c"
    source.write_text(STUB + "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names - DONE)))
    out = folder / "_linnet.so"
    subprocess.run([*build.compiler(), "-xc", "-shared", "-fPIC", str(source), "-o", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("stub"), functions())


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load such a library as the package loads its own; return the reason when it is refused."""

    def loaded(path: Path, layouts: str, version: int = library.ABI) -> str | None:
        for name in ("LINNET_NO_NATIVE", "LINNET_ISA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("LINNET_LIBRARY", str(path))
        monkeypatch.setenv("STUB_LAYOUTS", layouts)
        monkeypatch.setenv("STUB_ABI", str(version))
        lib, reason = library._load.__wrapped__()
        assert (lib is None) == (reason is not None)
        return reason

    return loaded


@needs_library
def test_every_struct_is_on_both_sides() -> None:
    lib = library.library()
    assert lib is not None
    text = lib.linnet_layouts().decode()
    assert difference(text, describe(STRUCTS.values())) is None
    assert {line.split()[0] for line in text.splitlines() if not line.startswith(" ")} == set(STRUCTS)


def test_every_struct_is_declared_and_every_pointer_of_a_call_has_a_shape() -> None:
    """A class without @declare would not be compared, and a pointer without a shape would not be verified."""
    written = {x for x in vars(structs).values() if isinstance(x, type) and issubclass(x, Struct)} - {Struct, Call}
    assert written == set(STRUCTS.values())
    for call in calls():
        for field in call.declared:
            assert not field.pointer or field.shape, (call, field)
            assert field.pointer or not field.shape, (call, field)


NORM = "linnet_norm_call 80\n out float* 0 8\n stat float* 8 8\n"
OTHER = {
    "a name": (
        (" stat float* 8 8\n", " moments float* 8 8\n"),
        "linnet_norm_call has moments (float*, 8 bytes at 8) where this package has stat (float*, 8 bytes at 8)",
    ),
    "a kind": (
        (" stat float* 8 8\n", " stat double* 8 8\n"),
        "linnet_norm_call has stat (double*, 8 bytes at 8) where this package has stat (float*, 8 bytes at 8)",
    ),
    "an order": (
        (" out float* 0 8\n stat float* 8 8\n", " stat float* 0 8\n out float* 8 8\n"),
        "linnet_norm_call has stat (float*, 8 bytes at 0) where this package has out (float*, 8 bytes at 0)",
    ),
    "an offset": (
        (" stat float* 8 8\n", " stat float* 16 8\n"),
        "linnet_norm_call has stat (float*, 8 bytes at 16) where this package has stat (float*, 8 bytes at 8)",
    ),
    "a size": (
        ("linnet_norm_call 80\n", "linnet_norm_call 88\n"),
        "linnet_norm_call has 88 bytes where this package has 80",
    ),
    "no such struct": ((NORM, NORM.replace("norm", "other")), "linnet_norm_call is missing"),
    "one more struct": (
        (NORM, "linnet_later_call 8\n x int64 0 8\n" + NORM),
        "linnet_later_call is not known to this package",
    ),
}


@needs_compiler
@pytest.mark.parametrize("what", OTHER)
def test_a_library_with_another_layout_is_refused(stub: Path, load: Load, what: str) -> None:
    ours = describe(STRUCTS.values())
    assert load(stub, ours) is None
    (right, wrong), sentence = OTHER[what]
    assert right in ours
    assert load(stub, ours.replace(right, wrong)) == (
        f"_linnet.so was built from other structs than this package: {sentence}: {AGAIN}"
    )


def test_fields_at_the_end_are_compared_too() -> None:
    ours = describe([structs.Norm])
    more, less = f"{ours} more int64 80 8\n", ours.replace(" eps double 72 8\n", "")
    eps, extra = "eps (double, 8 bytes at 72)", "more (int64, 8 bytes at 80)"
    assert difference(more, ours) == f"linnet_norm_call has {extra} where this package has no more fields"
    assert difference(less, ours) == f"linnet_norm_call has no more fields where this package has {eps}"


@needs_compiler
def test_another_abi_and_a_missing_function_are_refused(stub: Path, load: Load, tmp_path: Path) -> None:
    ours = describe(STRUCTS.values())
    assert load(stub, ours, 6) == f"_linnet.so has ABI 6 and this package wants {library.ABI}: {AGAIN}"
    without = load(compiled(tmp_path, functions() - {"linnet_norm"}), ours)
    assert without is not None
    assert without.startswith("_linnet.so lacks a function of this package (")
    assert "linnet_norm" in without
    assert without.endswith(AGAIN)


def test_a_declaration_is_read() -> None:
    fields = list(abi.parse("float*  sums[cols]  x[rows,2*cols|x_stride]\n\n  int64  rows cols x_stride"))
    assert [(f.name, f.kind) for f in fields[:2]] == [("sums", "float*"), ("x", "float*")]
    assert fields[0].shape == ("cols",)
    assert fields[0].strides is None
    assert (fields[1].shape, fields[1].strides) == (("rows", "2*cols"), ("x_stride",))
    assert [f.name for f in fields[2:]] == ["rows", "cols", "x_stride"]


@needs_library
def test_every_field_is_named_by_the_caller() -> None:
    fields = {"sums": torch.zeros(3), "x": torch.ones(2, 3), "rows": 2, "cols": 3, "x_stride": 3, "threads": 1}
    nn.COLUMN_SUMS.call(**fields)
    assert fields["sums"].tolist() == [2, 2, 2]  # type: ignore[attr-defined]
    for name in fields:
        with pytest.raises(TypeError, match=name):
            nn.COLUMN_SUMS.call(**{key: x for key, x in fields.items() if key != name})
    with pytest.raises(TypeError, match="length"):
        nn.COLUMN_SUMS.call(**fields, length=3)
    with pytest.raises(RuntimeError, match="linnet_column_sums refused the call: an argument out of range"):
        nn.COLUMN_SUMS.call(**fields | {"cols": 0})
