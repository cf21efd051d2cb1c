"""Chromium for the tests of pages: skipped where playwright or Chromium is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
).split()


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser for the block, or a skipped test."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install 'linnet[e2e]'")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine; Debian, Ubuntu: apt-get install chromium")
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()
