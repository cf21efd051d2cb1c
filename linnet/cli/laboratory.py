"""Access to the laboratory's commands, which an installation may leave out."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

LABS = "linnet.labs.cli"


def has_laboratory() -> bool:
    """Return True unless this installation leaves out linnet/labs."""
    return find_spec("linnet.labs") is not None


def laboratory(name: str) -> ModuleType:
    """Import one module of the laboratory's command line by name; raise ValueError if the laboratory is missing."""
    if not has_laboratory():
        raise ValueError("this command needs linnet/labs, which this installation leaves out; install all of linnet")
    return import_module(f"{LABS}.{name}")
