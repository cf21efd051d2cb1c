"""Speed, measured: each competitor agrees with a float64 reference before it is timed, all take turns in one process.

    plan(settings) -> jobs;   job.run() -> rows (plain values)        `linnet bench ops` shows them, this package measures

Competitors of a case run round-robin with an sgemm in every round; what counts is the minimum of the rounds, the median
stands beside it, and ratios are read rather than milliseconds.
"""

from __future__ import annotations

from .plan import DEFAULT_LENGTHS as DEFAULT_LENGTHS
from .plan import SECTIONS as SECTIONS
from .plan import Job as Job
from .plan import Settings as Settings
from .plan import plan as plan
