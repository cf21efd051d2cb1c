"""Speed, measured: each competitor agrees with a float64 reference before it is timed, all take turns in one process.

    plan(settings(...)) -> jobs,   job.run() -> rows        this package measures, `linnet bench ops` shows the rows

Competitors of a case run round-robin with an sgemm in every round; what counts is the minimum of the rounds, the median
stands beside it, and ratios are read rather than milliseconds.
"""

from __future__ import annotations

from .jobs import DEFAULT_LENGTHS as DEFAULT_LENGTHS
from .jobs import SECTIONS as SECTIONS
from .jobs import Job as Job
from .jobs import Settings as Settings
from .jobs import plan as plan
from .jobs import settings as settings
