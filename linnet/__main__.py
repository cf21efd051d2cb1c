"""`python -m linnet`: the command line as a module, for launchers such as torchrun."""

from __future__ import annotations

from .cli.main import main

main()
