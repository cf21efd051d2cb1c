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
    return dict(finite({**about(rows, minutes), **found, "tables": tables}))


def about(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    last = rows[-1]
    made = {name: last[name] for name in ("commit", "versions", "machine")}
    return {"format": FORMAT, **made, "runs": len(rows), "minutes": round(minutes, 2)}
