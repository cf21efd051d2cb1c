"""Experiments: units of work that yield rows, run in one process, in several or on Ray, and stored as JSONL.

with Store(path) as store:                      results.py: rows, appended atomically, resumed after a kill
    run_all(units, function, store, workers=2)  runner.py: function(unit) yields rows; only this process writes
"""

from __future__ import annotations

from .results import Row as Row
from .results import Store as Store
from .results import make_row as make_row
from .results import read_rows as read_rows
from .runner import Failure as Failure
from .runner import run_all as run_all
