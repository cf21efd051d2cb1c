"""The studies by name: one question to a file."""

from __future__ import annotations

from ..study import Study
from . import ablation, drift, floor, iou, length, rates

STUDIES: dict[str, Study] = {one.STUDY.name: one.STUDY for one in (length, ablation, floor, drift, rates, iou)}
