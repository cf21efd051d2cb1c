"""The studies by name: one question to a file."""

from __future__ import annotations

from ..study import Study
from . import (
    ablation,
    drift,
    extrapolation,
    floor,
    forgetting,
    iou,
    length,
    ranking,
    rates,
    shift,
    state_law,
)

ORDER = (ranking, length, ablation, floor, drift, rates, state_law, shift, iou, forgetting, extrapolation)
STUDIES: dict[str, Study] = {one.STUDY.name: one.STUDY for one in ORDER}
