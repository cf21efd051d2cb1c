"""Reports: turn results into pages with tables and figures. Nothing here trains, measures or needs a model."""

from __future__ import annotations
