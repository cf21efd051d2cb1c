"""The results of a folder as one JSON document: every claim with its verdict, numbers, tables and charts.

The page, the terminal, Markdown, CSV and the README are rendered from it (linnet/labs/report), and it is computed from
rows only. The keys are those of the dataclasses in core/claim.py; the outcome is what the licence (core/licence.py)
allows, or "error" where work failed. Next to it stands the committed evidence (core/agreement.py), unless these rows
are the committed ones.

A folder may hold a day run in its folder `day`. A claim that has a complete stage there is judged by those rows alone,
whatever the smaller rows say, so that one question has one answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...json_file import finite_or_none
from ..core.agreement import agreement, shown
from ..core.claim import ADDRESSES, DAY, PAPERS, Claim, Finding, Number, Setting, complete, untested
from ..core.clock import CLOCK, minutes
from ..core.evidence import EVIDENCE, read_evidence
from ..core.folder import RUN, Run, read_failures, read_postponed, read_run
from ..core.foreign import own_rows
from ..core.judgement import allowed, judged
from ..core.manifest import check_manifest, fingerprint, joint_fingerprint
from ..core.outlook import outlook
from ..core.results import ROWS, Row, core_seconds, key, read_rows
from ..core.runner import sentence
from ..core.verdicts import ERROR, OUTCOMES, Table
from . import claims as all_claims

FORMAT = 2


def document(
    out: Path,
    *,
    skip_damaged: bool = False,
    every: Mapping[str, Claim] | None = None,
    evidence: Path = EVIDENCE,
) -> dict[str, Any]:
    """Return the document of a folder, whether or not a run is still writing it. every: all claims by name."""
    every = all_claims() if every is None else every
    content = one_run(out, every, skip_damaged)
    if (out / DAY / RUN).is_file():
        content = with_day(content, one_run(out / DAY, every, skip_damaged), [*every])
    content = dict(finite_or_none(content))
    add_committed(content, evidence)
    return content


def one_run(out: Path, every: Mapping[str, Claim], skip_damaged: bool = False) -> dict[str, Any]:
    """Return the document of the rows of one run, without the committed evidence."""
    run, rows, damaged = read_folder(out, every, skip_damaged=skip_damaged)
    failures, postponed = read_failures(out), read_postponed(out)
    known = {key(row["config"]): row for row in rows}
    setting = run.setting(out, row=lambda config: known.get(key(config)))
    findings = [
        claim_document(every[name], known, setting, failures, postponed) for name in every if name in run.claims
    ]
    head = {**about(run, rows, minutes(out / CLOCK)), "sha256": fingerprint(out), "damaged": damaged}
    lines = outlook([every[name] for name in every if name in run.claims], setting, known) if run.budget == DAY else []
    return {**head, "work": [line._asdict() for line in lines], "day": None, **counted(findings)}


def with_day(content: dict[str, Any], day: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Return the document of a run with the claims that its day run decides in the place of its own."""
    claims = {claim["name"]: claim for claim in content["claims"]}
    claims |= {one["name"]: one for one in day["claims"] if one["name"] not in claims or not one["missing"]}
    damaged = [*content["damaged"], *day["damaged"]]
    sha256 = joint_fingerprint(content["sha256"], day["sha256"])
    origin = {name: day[name] for name in ("rows", "started", "commits", "machine", "other_machines")}
    merged = {**content, "sha256": sha256, "damaged": damaged, "work": day["work"], "day": origin}
    return merged | counted([claims[name] for name in order if name in claims])


def read_folder(
    out: Path, every: Mapping[str, Claim], *, skip_damaged: bool = False
) -> tuple[Run, list[Row], list[str]]:
    """Return the settings of a folder, its rows, and a sentence for every line that was skipped."""
    run = read_run(out)
    check_manifest(out, grows=run.budget == DAY)
    path, damaged = out / ROWS, list[str]()
    problems = damaged if skip_damaged else None
    rows = read_rows(path, damaged=problems) if path.exists() else []
    others = damaged if skip_damaged or run.budget == DAY else None  # what a day run needs may change from day to day
    return run, own_rows(rows, run, out, every, problems=others), damaged


def add_committed(content: dict[str, Any], evidence: Path) -> None:
    """Add to every claim its committed record and what this run adds to it."""
    committed = read_evidence(evidence)
    if committed is None or committed["rows"] == content["sha256"]:
        return
    for claim in content["claims"]:
        record = committed["claims"].get(claim["name"])
        if record is not None:
            claim["committed"], claim["agreement"] = shown(record), agreement(claim, record)


def about(run: Run, rows: Sequence[Row], taken: float) -> dict[str, Any]:
    """Return the origin of the rows: commit and versions of the last one, the machine of most and those of others."""
    last: Mapping[str, Any] = rows[-1] if rows else {"commit": None, "versions": {}}
    origin = {name: last[name] for name in ("commit", "versions")}
    counts = Counter(map(machine_of, rows))
    machines = [{**dict(machine), "rows": count} for machine, count in counts.most_common()]
    origin |= {"machine": machines[0] if machines else {}, "other_machines": machines[1:]}
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
    claim: Claim,
    known: Mapping[str, Row],
    setting: Setting,
    failures: Sequence[Mapping[str, Any]],
    postponed: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return one claim. postponed: the claims without time, by name (core/folder.py)."""
    work = claim.work(setting)
    keys = [key(config) for unit in work for config in unit.configs]
    judged_keys = complete(work, known)
    rows = [known[one] for one in keys if one in known]
    later = sum(one not in known for one in keys) if judged_keys is not None else 0
    missing = len(keys) - len(rows) - later
    errors = [f"{one['unit']}: {one['error']}" for one in failures if set(keys) & set(one["keys"]) - set(known)]
    try:
        result = finding(claim, [known[one] for one in judged_keys or ()], missing, len(keys))
    except Exception as error:  # the other claims are still reported
        result = untested("its rows could not be read")
        errors.append(sentence(error))
    names = ("name", "number", "paper", "statement", "source", "rule", "change", "needs")
    content = {name: getattr(claim, name) for name in names}
    content |= {"command": f"linnet reproduce {claim.name} --budget {setting.budget}", "errors": errors}
    no_time = (postponed or {}).get(claim.name) if missing else None
    content |= judged(claim, result, allowed(result, bool(errors), no_time))
    content |= {"time": None if errors else no_time}
    content |= {"rows": len(rows), "missing": missing, "later": later}
    content |= {"seconds": round(sum(map(core_seconds, rows)), 1), "foreign": foreign(rows, known)}
    content |= {"data": data_used(claim, setting, set(keys))}
    content |= {"numbers": [number_document(one) for one in result.numbers]}
    return content | {
        "tables": [table_document(t) for t in result.tables],
        "charts": [c.to_dict() for c in result.charts],
    }


def foreign(rows: Sequence[Row], known: Mapping[str, Row]) -> int:
    """Return how many rows of a claim come from another machine than most rows of the folder."""
    machines = Counter(machine_of(row) for row in known.values())
    return sum(machine_of(row) != machines.most_common(1)[0][0] for row in rows)


def machine_of(row: Row) -> tuple[Any, ...]:
    return tuple(sorted(row["machine"].items()))


def data_used(claim: Claim, setting: Setting, keys: set[str]) -> list[str]:
    """Return the data sets of the run without which the work of this claim would be another."""
    without = {name: replace(setting, data=setting.data - {name}) for name in sorted(setting.data)}
    return [name for name, fewer in without.items() if set(claim.keys(fewer)) != keys]


def finding(claim: Claim, rows: Sequence[Row], missing: int, wanted: int) -> Finding:
    if missing:
        return untested(f"{wanted - missing} of {wanted} pieces of work are done; the same command continues")
    return claim.read(rows)


def number_document(number: Number) -> dict[str, Any]:
    return {**number._asdict(), "shown": number.shown(), "spread": number.spread()}


def table_document(table: Table) -> dict[str, Any]:
    return {"title": table.title, "head": list(table.head), "rows": [list(row) for row in table.rows]}
