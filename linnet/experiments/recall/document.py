"""What a folder of recall rows says, as one document that JSON can hold: for `--json`, tables, pages and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..results import Row, finite
from .study import Study
from .sweep import summarise

FORMAT = 1


def document(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    """The cells of a sweep."""
    return dict(finite({**about(rows, minutes), "cells": [cell.to_dict() for cell in summarise(rows)]}))


def study_document(study: Study, rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    """A study's question, tables and verdict."""
    verdict = study.verdict(rows)
    found = {"name": study.name, "claim": study.claim, "question": study.question, "expected": study.expected}
    found |= {"rule": study.rule, "outcome": verdict.outcome, "sentence": verdict.sentence}
    tables = [
        {"title": t.title, "head": list(t.head), "rows": [list(row) for row in t.rows]} for t in study.tables(rows)
    ]
    maps = [] if study.maps is None else study.maps(rows)
    return dict(finite({**about(rows, minutes), **found, "tables": tables, "maps": maps}))


def about(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    last = rows[-1]
    made = {name: last[name] for name in ("commit", "versions", "machine")}
    found = {"format": FORMAT, **made, "runs": len(rows), "minutes": round(minutes, 2)}
    return {**found, "rows": [compact(row) for row in rows]}


def compact(row: Row) -> dict[str, Any]:
    """What a row found, in single numbers and words: enough for the tables of a sweep to be made again."""
    metrics = {name: value for name, value in row["metrics"].items() if not isinstance(value, (list, dict))}
    return {"config": row["config"], "metrics": metrics, "seconds": row["seconds"], "info": row["info"]}
