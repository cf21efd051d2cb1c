"""The results of a folder of recall rows as one JSON document: for `--json`, tables, pages and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...json_file import finite_or_none
from ..core.claim import Claim
from ..core.judgement import judged
from ..core.licence import licence
from ..core.results import Row
from ..core.verdicts import Table
from .study import RecallClaim
from .sweep import summarise

FORMAT = 2


def document(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    """Return the cells of a sweep."""
    return dict(finite_or_none({**about(rows, minutes), "cells": [cell.to_dict() for cell in summarise(rows)]}))


def study_document(study: Claim, rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    """Return a claim's statement, outcome and tables; the outcome is that of `linnet reproduce` for the same rows."""
    read = study.read(rows)
    summary = claim_words(study) | judged(study, read, licence(read.evidence))
    summary |= {"tables": table_dicts(read.tables), "maps": study.maps(rows) if isinstance(study, RecallClaim) else []}
    return dict(finite_or_none({**about(rows, minutes), **summary}))


def claim_words(claim: Claim) -> dict[str, Any]:
    words = {name: getattr(claim, name) for name in ("name", "statement", "source", "rule", "change")}
    return words | {"claim": claim.number}


def table_dicts(tables: Iterable[Table]) -> list[dict[str, Any]]:
    return [{"title": t.title, "head": list(t.head), "rows": [list(row) for row in t.rows]} for t in tables]


def about(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    last = rows[-1]
    origin = {name: last[name] for name in ("commit", "versions", "machine")}
    summary = {"format": FORMAT, **origin, "runs": len(rows), "minutes": round(minutes, 2)}
    return {**summary, "rows": [compact(row) for row in rows]}


def compact(row: Row) -> dict[str, Any]:
    """Return a row with its scalar metrics only: enough to rebuild the tables of a sweep."""
    metrics = {name: value for name, value in row["metrics"].items() if not isinstance(value, (list, dict))}
    return {"config": row["config"], "metrics": metrics, "seconds": row["seconds"], "info": row["info"]}
