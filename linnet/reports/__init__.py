"""Reports: results in, pages with tables and figures out. Nothing here trains, measures or needs a model."""

from __future__ import annotations
