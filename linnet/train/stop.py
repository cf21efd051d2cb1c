"""Stop a run between two steps on SIGINT or SIGTERM, after saving a checkpoint.

A second signal has its usual effect and ends the process immediately. Python handles signals in the main thread only;
in any other thread this class does nothing.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """A context manager whose `name` is "" or the first signal received inside the block."""

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
