"""The results of a folder as one JSON document: every claim with its verdict, numbers, tables and charts.

The page, the terminal, Markdown, CSV and the README are rendered from it (linnet/labs/report), and it is computed from
rows only. The keys are those of the dataclasses in core/claim.py; `outcome` may also be "error".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...json_file import finite_or_none
from ..core.claim import ADDRESSES, ERROR, OUTCOMES, PAPERS, Claim, Finding, Number, Setting, untested
from ..core.clock import CLOCK, minutes
from ..core.folder import Run, read_failures, read_run
from ..core.results import ROWS, Row, key, read_rows
from ..core.runner import sentence
from ..core.verdicts import Table
from . import claims as all_claims

FORMAT = 1


def document(out: Path, *, skip_damaged: bool = False, every: Mapping[str, Claim] | None = None) -> dict[str, Any]:
    """Return the document of a folder, whether or not a run is still writing it. every: all claims by name."""
    run, every = read_run(out), all_claims() if every is None else every
    path, damaged = out / ROWS, list[str]()
    rows = read_rows(path, damaged=damaged if skip_damaged else None) if path.exists() else []
    setting, failures = run.setting(out), read_failures(out)
    known = {key(row["config"]): row for row in rows}
    findings = [claim_document(every[name], known, setting, failures) for name in every if name in run.claims]
    return dict(finite_or_none({**about(run, rows, minutes(out / CLOCK)), "damaged": damaged, **counted(findings)}))


def about(run: Run, rows: Sequence[Row], taken: float) -> dict[str, Any]:
    last: Mapping[str, Any] = rows[-1] if rows else {"commit": None, "versions": {}, "machine": {}}
    origin = {name: last[name] for name in ("commit", "versions", "machine")}
    commits = sorted({row["commit"] or "none" for row in rows})
    how = {"budget": run.budget, "data": list(run.data), "started": run.started, "minutes": round(taken, 2)}
    return {"format": FORMAT, **how, **origin, "commits": commits, "rows": len(rows)}


def counted(claims: Sequence[dict[str, Any]]) -> dict[str, Any]:
    outcomes = [claim["outcome"] for claim in claims]
    asked = {claim["paper"] for claim in claims}
    papers = [{"key": k, "title": t, "address": ADDRESSES.get(k, "")} for k, t in PAPERS.items() if k in asked]
    counts = {outcome: outcomes.count(outcome) for outcome in (*OUTCOMES, ERROR)}
    return {"counts": counts, "papers": papers, "claims": list(claims)}


def claim_document(
    claim: Claim, known: Mapping[str, Row], setting: Setting, failures: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    keys = claim.keys(setting)
    rows = [known[one] for one in keys if one in known]
    missing = len(keys) - len(rows)
    errors = [f"{one['unit']}: {one['error']}" for one in failures if set(keys) & set(one["keys"]) - set(known)]
    try:
        result = finding(claim, rows, missing, len(keys))
    except Exception as error:  # the other claims are still reported
        result = untested("its rows could not be read")
        errors.append(sentence(error))
    names = ("name", "number", "paper", "question", "statement", "rule", "needs")
    content = {name: getattr(claim, name) for name in names}
    content |= {"command": f"linnet reproduce {claim.name} --budget {setting.budget}", "errors": errors}
    content |= {"outcome": ERROR if errors else result.outcome, "sentence": result.sentence, "meaning": result.meaning}
    content |= {"rows": len(rows), "missing": missing, "seconds": round(sum(row["seconds"] for row in rows), 1)}
    content |= {"numbers": [number_document(one) for one in result.numbers]}
    return content | {
        "tables": [table_document(t) for t in result.tables],
        "charts": [c.to_dict() for c in result.charts],
    }


def finding(claim: Claim, rows: Sequence[Row], missing: int, wanted: int) -> Finding:
    if missing:
        return untested(f"{wanted - missing} of {wanted} pieces of work are done; the same command goes on with it")
    return claim.read(rows)


def number_document(number: Number) -> dict[str, Any]:
    return {**number._asdict(), "shown": number.shown(), "spread": number.spread()}


def table_document(table: Table) -> dict[str, Any]:
    return {"title": table.title, "head": list(table.head), "rows": [list(row) for row in table.rows]}
