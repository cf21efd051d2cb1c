"""A share of the file fuzzer for the slow suite; `python -m tests.fuzz.files --cases 100000` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.file_kinds import KINDS
from tests.fuzz.files import Bench, fuzz

CASES = 36  # of each kind


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_damaged_files_are_refused_or_mean_the_same(name: str, tmp_path: Path) -> None:
    found = [finding for _, _, finding in fuzz(Bench(tmp_path, KINDS), 13, range(CASES), name) if finding is not None]
    assert not found, "\n".join(map(str, found))


def test_a_seed_gives_the_same_outcome_again(tmp_path: Path) -> None:
    outcomes = []
    for place in (tmp_path / "a", tmp_path / "b"):
        place.mkdir()
        outcomes.append([outcome for _, outcome, _ in fuzz(Bench(place, KINDS), 1, range(20), "tokenizer byte")])
    assert outcomes[0] == outcomes[1]
    assert len(set(outcomes[0])) > 1


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """A reader that raises something else, forgets the name of the file, or takes what is damaged, is seen."""
    kind = KINDS["job"]

    def careless(folder: Path) -> object:
        return (folder / "run.json").read_text(encoding="utf-8")  # a raw UnicodeDecodeError, else any content

    def strict(folder: Path) -> object:
        raise KeyError("model") if "symbols" not in careless(folder) else ValueError("it is damaged")  # type: ignore[operator]

    for load, problem in ((careless, "another content without a word"), (strict, "names no file")):
        bench = Bench(tmp_path, {"job": kind._replace(load=load, sealed=True)})
        (tmp_path / "job").mkdir(exist_ok=True)
        kind.make(tmp_path / "job")
        bench.before["job"] = careless(tmp_path / "job")
        found = [finding for _, _, finding in fuzz(bench, 1, range(30), "job") if finding is not None]
        assert any(problem in finding.problem for finding in found)
