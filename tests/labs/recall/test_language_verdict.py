"""What the rule about text finds in rows made by hand, what its controls hold back, and what the tables say."""

from __future__ import annotations

import pytest

from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import FAILS, HOLDS, NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES
from linnet.labs.recall.language_verdict import by_mixer, tables_of, verdict
from tests.labs.recall.made_up import outcome
from tests.labs.recall.made_up_text import FALLING, PAPER, row, rows


@pytest.mark.parametrize(
    ("made", "state", "printed"),
    [
        (rows(0.5, 0.45), YES, (SEEN, "")),
        (rows(0.5, 0.15), YES, (SEEN, "")),  # whatever the two differ by
        (rows(0.5, 0.05), NO, (NOT_SEEN, "")),  # one is behind by more on the rest
        (rows(0.5, 0.45, noise=0.6), OPEN, (UNTESTED, "undecided at this size")),
        (rows(0.5, 0.45, seeds=5, **PAPER), YES, (HOLDS, "")),
        (rows(0.05, 0.05, seeds=5, **PAPER), NO, (FAILS, "")),
        (rows(0.05, 0.05, seeds=4, **PAPER), NO, (UNTESTED, "4 seeds, 5 needed")),
        (rows(0.05, 0.05, seeds=5, curve=FALLING, **PAPER), NO, (UNTESTED, "a model had not converged")),
        (rows(0.05, 0.05, seeds=5, curve=[], **PAPER), NO, (UNTESTED, "a model had not converged")),  # none was kept
        (rows(0.5, 0.45, table=1.9), YES, (UNTESTED, "softmax looks nothing up")),
        (rows(0.5, 0.45, table=None), YES, (UNTESTED, "softmax looks nothing up")),  # no table was measured
        (rows(0.5, 0.45, rest=-0.1), YES, (UNTESTED, "no gap to explain")),  # ahead of softmax over all tokens
        (rows(0.5, 0.45, seeds=2), UNTESTED, (UNTESTED, "rows are missing")),
        (rows(0.5, 0.45)[::3], UNTESTED, (UNTESTED, "rows are missing")),
    ],
)
def test_what_is_found_and_what_is_printed(made: list[Row], state: str, printed: tuple[str, str]) -> None:
    found = verdict(by_mixer(made))
    assert (found.state, outcome(found)) == (state, printed)


def test_the_sentence_has_its_numbers() -> None:
    sentence = verdict(by_mixer(rows(0.5, 0.45, noise=0.0))).sentence
    assert "Based 0.400 [0.400, 0.400]; ReBased 0.350 [0.350, 0.350]" in sentence
    assert "1 seed in common" in verdict(by_mixer(rows(0.5, 0.45, seeds=1))).sentence


def test_each_mixer_at_the_rate_that_other_windows_chose() -> None:
    result = by_mixer([row("based", 0, 1.0, 1.0, chosen=-3.0), row("based", 0, 9.0, 9.0, lr=1e-3, chosen=-2.0)])
    assert result["based"][0]["config"]["lr"] == 1e-3


def test_a_run_without_a_number_is_left_out() -> None:
    made = [*rows(0.5, 0.45, seeds=4)[:-1], row("rebased", 3, None, 1.0)]
    assert sorted(by_mixer(made)["rebased"]) == [0, 1, 2]
    assert not tables_of(by_mixer([row("rebased", 0, None, 1.0)]))[0].rows


def test_the_tables() -> None:
    losses, gaps = tables_of(by_mixer(rows(0.5, 0.45, noise=0.0)))
    assert "some: 100 hits of 1,000 held-out tokens, bigrams seen at most 7 times" in losses.title
    assert [line[0] for line in losses.rows] == ["softmax (3 seeds)", "based (3 seeds)", "rebased (3 seeds)"]
    assert losses.rows[0][1:3] == ("2.000 [2.000, 2.000]", "7.39")
    (based, _) = gaps.rows
    assert based[1:] == ("0.500 [0.500, 0.500]", "0.100 [0.100, 0.100]", "0.400 [0.400, 0.400]", "36%")  # 50 of 50 + 90
    assert len(tables_of(by_mixer(rows(0.5, 0.45)[1::3]))) == 1  # nothing to be behind


@pytest.mark.parametrize(("based", "rest"), [(-0.1, 0.2), (0.3, -0.1), (-0.1, -0.1)])
def test_a_gap_of_two_signs_has_no_share(based: float, rest: float) -> None:
    line = tables_of(by_mixer(rows(based, 0.5, rest=rest, noise=0.0)))[1].rows[0]
    assert line[-1] == "-"
