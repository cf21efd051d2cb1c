"""SIGINT and SIGTERM ask a run to stop; it stops between two steps, when everything is saved.

A second signal acts as it always did, for whoever cannot wait. Signals can be caught in the main thread only: elsewhere
this does nothing, and the signals keep their usual meaning.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """While open, `name` is "" or the first signal that came."""

    def __init__(self) -> None:
        self.name = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in CAUGHT}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        self.__exit__()
