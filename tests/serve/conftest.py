"""One server for all tests of a process; a test must not depend on what others left there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    from .serving import serving

    with serving() as running:
        yield running
