"""The fixtures of tests/cli, for the laboratory's commands."""

from __future__ import annotations

from tests.cli.conftest import book as book
from tests.cli.conftest import elsewhere as elsewhere
