"""A share of the file fuzzer for the slow suite, on the laboratory's files; see tests/fuzz/test_files.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.files import Bench, fuzz
from tests.fuzz.test_files import CASES
from tests.labs.core.file_kinds import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_damaged_files_are_refused_or_mean_the_same(name: str, tmp_path: Path) -> None:
    result = [finding for _, _, finding in fuzz(Bench(tmp_path, KINDS), 13, range(CASES), name) if finding is not None]
    assert not result, "\n".join(map(str, result))
