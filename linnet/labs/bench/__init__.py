"""Speed benchmarks: each competitor must agree with a float64 reference, then all are timed in turns in one process.

    plan(settings(...)) -> jobs,   job.run() -> rows        this package measures, `linnet bench ops` shows the rows

The competitors of a case run round-robin with an sgemm in every round. Times are the minimum of the rounds, with the
median; ratios are more reliable than milliseconds.
"""

from __future__ import annotations

from .jobs import DEFAULT_LENGTHS as DEFAULT_LENGTHS
from .jobs import SECTIONS as SECTIONS
from .jobs import Job as Job
from .jobs import Settings as Settings
from .jobs import plan as plan
from .jobs import settings as settings
