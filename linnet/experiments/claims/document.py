"""What a folder says, as one document that JSON can hold: every claim with verdict, numbers, tables and curves.

The page, the terminal, markdown, CSV and the README are all made from it (linnet/reports/reproduce.py), and it is made
from rows only. The keys are those of the dataclasses in claim.py; `outcome` may also be "error".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..clock import minutes
from ..recall.study import Table
from ..results import Row, finite, key, read_rows
from ..runner import sentence
from . import claims as all_claims
from .claim import ADDRESSES, ERROR, OUTCOMES, PAPERS, Chart, Claim, Finding, Heat, Number, Setting, untested
from .folder import CLOCK, ROWS, Run, read_failures, read_run

FORMAT = 1


def document(out: Path, *, skip_damaged: bool = False, every: Mapping[str, Claim] | None = None) -> dict[str, Any]:
    """Of a folder, whether or not a run is still writing it. every: the claims there are, by name."""
    run, every = read_run(out), all_claims() if every is None else every
    path, damaged = out / ROWS, list[str]()
    rows = read_rows(path, damaged=damaged if skip_damaged else None) if path.exists() else []
    setting, failures = run.setting(out), read_failures(out)
    known = {key(row["config"]): row for row in rows}
    found = [claim_document(every[name], known, setting, failures) for name in every if name in run.claims]
    return dict(finite({**about(run, rows, minutes(out / CLOCK)), "damaged": damaged, **counted(found)}))


def about(run: Run, rows: Sequence[Row], taken: float) -> dict[str, Any]:
    last: Mapping[str, Any] = rows[-1] if rows else {"commit": None, "versions": {}, "machine": {}}
    made = {name: last[name] for name in ("commit", "versions", "machine")}
    commits = sorted({row["commit"] or "none" for row in rows})
    how = {"budget": run.budget, "data": list(run.data), "started": run.started, "minutes": round(taken, 2)}
    return {"format": FORMAT, **how, **made, "commits": commits, "rows": len(rows)}


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
        found = finding(claim, rows, missing, len(keys))
    except Exception as error:  # the other claims are still to be told
        found = untested("its rows could not be read")
        errors.append(sentence(error))
    names = ("name", "number", "paper", "question", "statement", "rule", "needs")
    said = {name: getattr(claim, name) for name in names}
    said |= {"command": f"linnet reproduce {claim.name} --budget {setting.budget}", "errors": errors}
    said |= {"outcome": ERROR if errors else found.outcome, "sentence": found.sentence, "meaning": found.meaning}
    said |= {"rows": len(rows), "missing": missing, "seconds": round(sum(row["seconds"] for row in rows), 1)}
    said |= {"numbers": [number_document(one) for one in found.numbers]}
    return said | {"tables": [table_document(t) for t in found.tables], "charts": [drawn(c) for c in found.charts]}


def finding(claim: Claim, rows: Sequence[Row], missing: int, wanted: int) -> Finding:
    if missing:
        return untested(f"{wanted - missing} of {wanted} pieces of work are done; the same command goes on with it")
    return claim.read(rows)


def number_document(number: Number) -> dict[str, Any]:
    return {**number._asdict(), "shown": number.shown(), "spread": number.spread()}


def table_document(table: Table) -> dict[str, Any]:
    return {"title": table.title, "head": list(table.head), "rows": [list(row) for row in table.rows]}


def drawn(chart: Chart | Heat) -> dict[str, Any]:
    return {"type": "chart" if isinstance(chart, Chart) else "heat", **asdict(chart)}
