"""A plugin for pytest: one case of every test, the first of those selected (`-p tests.first_cases`).

For runs that repeat a suite under other conditions (without the laboratory, on the oldest transformers), where what
breaks is an import or an interface, and breaks in any case of a test.
"""

from __future__ import annotations

import pytest

EVERY_CASE = {"test_as_any_model_of_transformers"}  # whose cases are different checks


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: set[str] = set()
    kept, left = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        first = test not in seen or test.rpartition("::")[2] in EVERY_CASE
        seen.add(test)
        (kept if first else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
