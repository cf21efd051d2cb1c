"""The committed evidence: the outcome of every claim of the published run, shipped with the package.

    linnet report docs/results --evidence linnet/labs/evidence.json       writes it from the rows

`linnet reproduce` shows it next to what this machine adds (agreement.py). Every record carries a hash, so that one that
was edited is named and refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...atomic import atomic
from ...errors import StateError
from ...json_file import read_json
from ...schema import Accepts, Each, Maybe, Number, Record, Table, Text, Whole, check
from .claim import rounded

EVIDENCE = Path(__file__).resolve().parents[1] / "evidence.json"
FORMAT = 1
DIGITS = 12  # of a hash
FIGURES = 9  # significant ones of a number
NUMBER = ("what", "shown", "spread", "ours", "low", "high")
DECIDES = Record({name: Text() for name in NUMBER[:3]} | {name: Maybe(Number()) for name in NUMBER[3:]})
CLAIM = Record(
    {name: Text() for name in ("outcome", "answer", "scope", "sizes", "hash")}
    | {"outside": Each(Text()), "data": Each(Text()), "number": Maybe(DECIDES)}
)
CONTENT = Record(
    {"format": Whole(FORMAT, FORMAT), "rows": Text(), "budget": Text(), "claims": Table(CLAIM)},
    {"linnet": Maybe(Text()), "machine": Accepts()},
)


def write_evidence(document: Mapping[str, Any], path: Path) -> None:
    """Write the evidence of a document (linnet/labs/claims/document.py)."""
    with atomic(path) as file:
        file.write(json.dumps(evidence(document), indent=1, ensure_ascii=False).encode() + b"\n")


def evidence(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `write_evidence` writes."""
    about = {"format": FORMAT, "rows": document["sha256"], "budget": document["budget"]}
    about |= {"linnet": document["versions"].get("linnet"), "machine": document["machine"]}
    return about | {"claims": {claim["name"]: record(claim) for claim in document["claims"]}}


def record(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of one claim of a document: outcome, answer, the number that decides, scope, sizes, data."""
    first = next(iter(claim["numbers"]), None)
    content = {name: claim[name] for name in ("outcome", "answer", "scope")}
    content |= {"sizes": claim["regime"]["here"], "outside": list(claim["regime"]["outside"]), "data": claim["data"]}
    content |= {"number": first and {name: settled(first[name]) for name in NUMBER}}
    return content | {"hash": digest(content)}


def settled(value: Any) -> Any:
    """Return a number without the last digits, which differ between processors; anything else as it is."""
    return rounded(value, FIGURES) if isinstance(value, float) else value


def read_evidence(path: Path = EVIDENCE) -> dict[str, Any] | None:
    """Return the committed evidence, or None if there is none; refuse a file that was edited, naming the claim."""
    if not path.is_file():
        return None
    way_out = "install linnet again, or write it with `linnet report docs/results --evidence FILE`"
    content: dict[str, Any] = check(
        read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError
    )
    for name, claim in content["claims"].items():
        if digest({field: value for field, value in claim.items() if field != "hash"}) != claim["hash"]:
            raise StateError(f"{path} was edited: the record of {name} does not match its hash; {way_out}")
    return content


def digest(content: Mapping[str, Any]) -> str:
    """Return the short hash of a record."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]
