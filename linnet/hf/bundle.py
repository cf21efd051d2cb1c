"""Modules stored as text inside one file: how a model folder carries its code where linnet is not installed.

    Bundle(name, {"ops.norm": source, ...}).module("ops.norm")

remote.py copies this file verbatim to the top of the modeling file it writes; the texts below it are the package's
modules. Each becomes a module under `name`, a hash of the texts, so that folders written by different versions, or a
folder and the package itself, never collide.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Bundle(MetaPathFinder, Loader):
    """Import hook for the modules of `sources`, keyed by their names without the package."""

    def __init__(self, name: str, sources: Mapping[str, str]) -> None:
        self.name, self.sources = name, sources
        if not any(isinstance(finder, Bundle) and finder.name == name for finder in sys.meta_path):
            sys.meta_path.append(self)

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.name}.{name}")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != self.name or rest not in self.sources:
            return None
        package = any(other != rest and other.startswith(f"{rest}." if rest else "") for other in self.sources)
        return ModuleSpec(fullname, self, origin=f"<{fullname}>", is_package=package)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__file__ = module.__spec__.origin
        exec(compile(self.get_source(module.__name__), f"<{module.__name__}>", "exec"), module.__dict__)

    def get_source(self, fullname: str) -> str:
        """Return the source, for tracebacks."""
        return self.sources[fullname.partition(".")[2]]
