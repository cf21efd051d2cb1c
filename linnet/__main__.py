"""`python -m linnet`: the command line, for launchers such as torchrun that start a module."""

from __future__ import annotations

from .cli.main import main

main()
