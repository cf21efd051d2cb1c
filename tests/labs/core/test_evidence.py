"""The committed evidence: it is what the committed rows give, and an edited row or record is named and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet import StateError
from linnet.labs.claims.document import document
from linnet.labs.core.evidence import EVIDENCE, evidence, read_evidence, record, write_evidence
from linnet.labs.core.folder import begin
from linnet.labs.core.manifest import check_manifest, write_manifest
from linnet.labs.core.reproduce import reproduce
from tests.labs.core.claims_stand_in import CLAIMS, made

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "results"
AGAIN = "linnet report docs/results --seal --evidence linnet/labs/evidence.json writes it"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    begun = begin(folder, "quick", list(CLAIMS.values()), shipped=True)
    reproduce(list(CLAIMS.values()), begun, folder)
    return folder


def test_the_shipped_evidence_is_what_the_committed_rows_give() -> None:
    result = document(RESULTS)
    assert read_evidence() == json.loads(json.dumps(evidence(result))), AGAIN
    assert not any("agreement" in claim for claim in result["claims"])  # it is not compared with itself


def test_a_last_digit_of_another_processor_changes_no_record() -> None:
    (claim, *_) = (one for one in document(RESULTS)["claims"] if one["numbers"] and one["numbers"][0]["low"])
    first = claim["numbers"][0]
    other = claim | {"numbers": [first | {"low": first["low"] * (1 + 1e-15)}]}
    assert other["numbers"][0]["low"] != first["low"]
    assert record(other) == record(claim)


def test_the_committed_rows_are_sealed() -> None:
    assert (RESULTS / "manifest.json").is_file(), AGAIN
    check_manifest(RESULTS)


def test_the_shipped_evidence_is_part_of_the_package() -> None:
    assert EVIDENCE == ROOT / "linnet" / "labs" / "evidence.json"
    assert '"linnet.labs" = ["evidence.json"]' in (ROOT / "pyproject.toml").read_text()


def changed(line: str) -> str:
    row = json.loads(line)
    return json.dumps(row | {"metrics": row["metrics"] | {"square": 0}})


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda x: [*x[:2], changed(x[2]), *x[3:]], r"line 3 \(timed, i 2, seed 2\) is not the row that manifest"),
        (lambda x: [*x[:3], *x[4:]], r"line 4 \(plain, i 1, seed 1\) is not the row"),
        (lambda x: x[:5], r"it ends after line 5, and manifest\.json has 6 rows"),
        (lambda x: [*x, x[0]], r"line 7 \(timed, i 0, seed 0\) is not in manifest\.json"),
        (lambda x: [*x[:1], "{", *x[2:]], r"line 2 \(not a row\)"),
        (lambda x: [*x[:5], x[5] + "\r"], "its lines end in other characters"),
    ],
    ids=["changed", "removed", "cut", "added", "damaged", "line ends"],
)
def test_an_edited_row_is_named(out: Path, edit: Any, expected: str) -> None:
    write_manifest(out)
    assert document(out, every=CLAIMS)["rows"] == 6
    lines = (out / "rows.jsonl").read_text().splitlines()
    edited = "\n".join(edit(lines)) + "\n"
    (out / "rows.jsonl").write_bytes(edited.encode())
    with pytest.raises(StateError, match=rf"rows\.jsonl was edited: {expected}.*; restore .* --seal"):
        document(out, every=CLAIMS, skip_damaged=True)
    assert (out / "rows.jsonl").read_bytes() == edited.encode()


def test_a_folder_without_rows_is_not_sealed_and_a_damaged_seal_is_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"has no rows\.jsonl to seal"):
        write_manifest(tmp_path)
    (out / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(StateError, match=r"manifest\.json.*restore it from the repository, or delete it"):
        document(out, every=CLAIMS)


def test_no_row_is_added_to_a_sealed_folder(out: Path) -> None:
    write_manifest(out)
    reproduce(list(CLAIMS.values()), begin(out, "quick", list(CLAIMS.values()), shipped=True), out)  # nothing to do
    before, more = (out / "rows.jsonl").read_bytes(), [made("more", "icl")]
    with pytest.raises(StateError, match=r"is sealed by manifest\.json, and rows of more are missing; name another"):
        reproduce(more, begin(out, "quick", more, shipped=True), out)
    assert (out / "rows.jsonl").read_bytes() == before


def test_evidence_is_written_and_read_again_and_rows_are_not_compared_with_themselves(out: Path) -> None:
    file = out.parent / "evidence.json"
    plain = document(out, every=CLAIMS, evidence=file)
    assert not any("committed" in claim for claim in plain["claims"])  # there is no evidence yet
    write_evidence(plain, file)
    content = read_evidence(file)
    assert content is not None
    assert content["rows"] == plain["sha256"]
    assert content["claims"]["plain"]["outcome"] == "holds"
    assert content["claims"]["plain"]["number"]["what"] == "mean of the squares"
    assert document(out, every=CLAIMS, evidence=file) == plain


def test_another_run_is_compared_with_the_evidence(out: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "evidence.json", tmp_path / "other"
    write_evidence(document(out, every=CLAIMS), file)
    some = [CLAIMS["plain"], CLAIMS["timed"]]
    reproduce(some[:1], begin(other, "quick", some, shipped=True), other)
    plain, timed = document(other, every=CLAIMS, evidence=file)["claims"]
    assert plain["agreement"] == {"word": "agrees", "reason": ""}
    assert plain["committed"]["answer"] == "Yes, all of them"
    assert plain["committed"]["shown"] == plain["numbers"][0]["shown"]
    assert timed["agreement"]["word"] == "not run"
    assert "0 of 3 pieces of work are done" in timed["agreement"]["reason"]


def test_an_edited_record_is_named(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    write_evidence(document(out, every=CLAIMS), file)
    content = json.loads(file.read_text())
    content["claims"]["shared"]["outcome"] = "does not hold"
    file.write_text(json.dumps(content))
    with pytest.raises(StateError, match=r"evidence\.json was edited: the record of shared does not match its hash; "):
        read_evidence(file)
    file.write_text("{}")
    with pytest.raises(StateError, match=r"evidence\.json.*install linnet again"):
        read_evidence(file)
