"""Adds the native library to the setuptools build: optional, plain C ABI, no Python.h, one file for every Python.

Everything else is in pyproject.toml; how the library is compiled is in linnet/native/build.py.
LINNET_NO_NATIVE=1 leaves it out, LINNET_SANITIZE=1 builds it with sanitizers, CXX names the compiler.
"""

import importlib.util
import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
# By path: importing it as linnet.native.build would need the package, which is what is being built.
spec = importlib.util.spec_from_file_location("build_native", ROOT / "linnet" / "native" / "build.py")
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)


class BuildLibrary(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"

    def run(self) -> None:
        if self.inplace:  # an editable install: a library left from older sources is worse than none
            for ext in self.extensions:
                (ROOT / self.get_ext_filename(ext.name)).unlink(missing_ok=True)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        try:
            if os.environ.get("LINNET_NO_NATIVE"):
                raise native.BuildError("LINNET_NO_NATIVE is set")
            out = Path(self.get_ext_fullpath(ext.name))
            native.build(out.parent, sanitize=bool(os.environ.get("LINNET_SANITIZE")))
        except native.BuildError as error:
            raise CompileError(f"native kernels left out, linnet will run on plain torch: {error}") from None


class PlatformWheel(bdist_wheel):
    """The library does not know Python: one wheel per platform, for every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("linnet.native._linnet", ["linnet/native/csrc/api.cpp"], optional=True)],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
