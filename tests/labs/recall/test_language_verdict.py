"""The verdict on text: from rows made by hand, one for each outcome, and what the tables say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linnet.labs.core.results import Row, make_row
from linnet.labs.recall.language_config import TextConfig
from linnet.labs.recall.language_verdict import by_mixer, document, verdict


def row(mixer: str, seed: int, hits: float | None, rest: float, *, lr: float = 3e-3, chosen: float = -1.0) -> Row:
    config = TextConfig(mixer=mixer, seed=seed, lr=lr, text="some").to_dict()
    parts: dict[str, Any] = {"hits": (hits, 100), "rest": (rest, 900), "all": (rest, 1000)}
    metrics = {part: {"loss": loss, "bits": rest, "targets": n} for part, (loss, n) in parts.items()}
    return make_row(config, {**metrics, "chosen_by": chosen, "most": 7, "state_bytes": 64}, 2.0, {"parameters": 10})


def rows(based: float, rebased: float, *, rest: float = 0.1, seeds: int = 3, noise: float = 0.01) -> list[Row]:
    """Softmax at 2 on hits and 4 on the rest; the others behind by so much, and a little more or less by the seed."""
    collected = []
    for seed in range(seeds):
        moved = noise * (seed - 1)
        collected += [row("softmax", seed, 2.0, 4.0)]
        collected += [
            row(m, seed, 2.0 + gap + moved, 4.0 + rest) for m, gap in (("based", based), ("rebased", rebased))
        ]
    return collected


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(0.5, 0.45), "confirmed"),
        (rows(0.05, 0.05), "refuted"),  # behind by more on the rest
        (rows(0.5, 0.15), "refuted"),  # they differ by more than the better one is behind
        (rows(0.5, 0.45, noise=0.6), "unclear"),
        (rows(0.5, 0.45, seeds=2), "not testable"),
        (rows(0.5, 0.45)[::3], "not testable"),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert verdict(by_mixer(made)).outcome == outcome


def test_the_sentence_has_its_numbers() -> None:
    sentence = verdict(by_mixer(rows(0.5, 0.45, noise=0.0))).sentence
    assert "based: behind on hits by more than on the rest by 0.400 [0.400, 0.400]" in sentence
    assert "behind softmax on hits by more than they differ by 0.400 [0.400, 0.400]" in sentence  # .45 less .05


def test_each_mixer_at_the_rate_that_other_windows_chose() -> None:
    result = by_mixer([row("based", 0, 1.0, 1.0, chosen=-3.0), row("based", 0, 9.0, 9.0, lr=1e-3, chosen=-2.0)])
    assert result["based"][0]["config"]["lr"] == 1e-3


def test_a_run_without_a_number_is_left_out() -> None:
    made = [*rows(0.5, 0.45, seeds=4)[:-1], row("rebased", 3, None, 1.0)]
    assert sorted(by_mixer(made)["rebased"]) == [0, 1, 2]
    assert document([row("rebased", 0, None, 1.0)], 0.0)["tables"][0]["rows"] == []


def test_the_document() -> None:
    result = document(rows(0.5, 0.45, noise=0.0), 1.5)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert (result["claim"], result["outcome"], result["runs"], result["minutes"]) == ("C12", "confirmed", 9, 1.5)
    losses, gaps = result["tables"]
    assert "some: 100 hits of 1,000 held-out tokens, bigrams seen at most 7 times" in losses["title"]
    assert [line[0] for line in losses["rows"]] == ["softmax (3 seeds)", "based (3 seeds)", "rebased (3 seeds)"]
    assert losses["rows"][0][1:3] == ["2.000 [2.000, 2.000]", "7.39"]
    (based, _) = gaps["rows"]
    assert based[1:] == ["0.500 [0.500, 0.500]", "0.100 [0.100, 0.100]", "0.400 [0.400, 0.400]", "36%"]  # 50 of 50 + 90
    assert len(document(rows(0.5, 0.45)[1::3], 0.0)["tables"]) == 1  # nothing to be behind
