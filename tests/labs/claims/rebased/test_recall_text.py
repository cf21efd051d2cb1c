"""Recall-split language models: outcomes of the rule on made-up losses, the bigram table by hand, smoke units."""

from __future__ import annotations

import gzip
import json
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.labs.claims.rebased.recall_text import CLAIM, by_table, first_counts
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Setting
from linnet.labs.core.results import Row, key, make_row
from linnet.labs.recall.language_config import TextConfig
from linnet.labs.recall.language_text import prepared
from linnet.labs.recall.tasks import Bigrams


def row(mixer: str, seed: int, hits: float, rest: float, table: float) -> Row:
    config = TextConfig(mixer=mixer, seed=seed, text="some").to_dict()
    parts: dict[str, Any] = {"hits": (hits, 100), "rest": (rest, 900), "all": (rest, 1000)}
    metrics: dict[str, Any] = {part: {"loss": loss, "bits": rest, "targets": n} for part, (loss, n) in parts.items()}
    metrics["table"] = {"hits": {"loss": table}, "rest": {"loss": 5.0}}
    return make_row(config, {**metrics, "chosen_by": -1.0, "most": 7, "state_bytes": 64}, 2.0, {"parameters": 10})


def rows(based: float, rebased: float, *, noise: float = 0.01, table: float = 3.0) -> list[Row]:
    """Softmax at 2 on hits and 4 on the rest; the others are behind by so much on hits, by 0.1 on the rest."""
    collected = []
    for seed in range(3):
        moved = noise * (seed - 1)
        collected.append(row("softmax", seed, 2.0, 4.0, table))
        gaps = {"based": based, "rebased": rebased}
        collected += [row(mixer, seed, 2.0 + gap + moved, 4.1, table) for mixer, gap in gaps.items()]
    return collected


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(0.5, 0.45), CONFIRMED),
        (rows(0.05, 0.05), REFUTED),
        (rows(0.5, 0.45, noise=0.6), UNCLEAR),
        (rows(0.5, 0.45, table=1.9), UNTESTED),  # softmax knows no more than the table
        (rows(0.5, 0.45)[:6], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_the_numbers_are_gaps_in_nats() -> None:
    finding = CLAIM.read(rows(0.5, 0.45, noise=0.0))
    assert [round(number.ours, 6) for number in finding.numbers] == [0.45, 0.1, 0.5, 0.1, -0.05, 1.0]
    assert "ReBased is behind softmax on recall hits" in finding.numbers[0].what
    assert "at most 0.500 nats behind softmax on what can be looked up, 0.100 elsewhere" in finding.meaning
    assert finding.charts[0].series["bigram table"][0][:2] == ("on recall hits", 3.0)  # type: ignore[union-attr]


def test_not_testable_says_why_and_keeps_its_tables() -> None:
    finding = CLAIM.read(rows(0.5, 0.45, table=1.9))
    assert "by -0.100 [-0.100, -0.100] nats" in finding.sentence
    assert "alone would say confirmed: based: behind on hits" in finding.sentence
    assert len(finding.tables) == 2


def test_the_table_of_bigrams_by_hand(tmp_path: Path) -> None:
    words = "ab ab ab ac ab ad " * 40
    file = tmp_path / "text.txt.gz"
    file.write_bytes(gzip.compress(words.encode()))
    text = prepared([str(file)], 256, tmp_path / "tokens")
    config = TextConfig(vocab_size=256, rare=1.0, seq_len=16, chosen_on=1, windows=2)
    result = by_table(text, config)
    counts, held = text.bigrams(), text.windows("valid", 16).batch([1, 2])
    wanted = 0.0
    for tokens, targets in zip(held["tokens"].tolist(), held["targets"].tolist(), strict=True):
        for x, y in zip(tokens, targets, strict=True):
            same = [int(counts.of(torch.tensor(x), torch.tensor(z))) for z in range(256)]
            wanted -= log((same[y] + 1) / (sum(same) + 256))
    assert sum(nats for nats, _ in result.values()) == pytest.approx(wanted, rel=1e-9)
    assert sum(number for _, number in result.values()) == 32
    assert result["hits"][1] > 16 > result["rest"][1]


def test_counts_of_first_tokens() -> None:
    bigrams = Bigrams(torch.tensor([0, 1, 5]), torch.tensor([2, 3, 4]), 3)  # 00 twice, 01 three times, 12 four times
    assert first_counts(bigrams).tolist() == [5.0, 4.0, 0.0]


def test_smoke_units_run_on_the_shipped_text(tmp_path: Path) -> None:
    setting = Setting("smoke", tmp_path, frozenset({"text"}))
    units = CLAIM.units(setting)
    made = [row for unit in units for row in unit.function(unit.work)]
    assert [row["config"] for row in made] == CLAIM.configs(setting)
    assert {row["config"]["mixer"] for row in made} == {"softmax", "based", "rebased"}
    for row in made:
        assert row["metrics"]["table"]["all"]["targets"] == row["metrics"]["all"]["targets"] == 8 * 32
        assert row["metrics"]["table"]["hits"]["targets"] == row["metrics"]["hits"]["targets"]
    json.dumps(made, allow_nan=False)
    assert CLAIM.read(made).outcome == UNTESTED  # of one seed


def test_text_of_a_data_folder_is_used_where_there_is_one() -> None:
    texts = [CLAIM.configs(Setting("hour", data=frozenset(data)))[0]["text"] for data in ((), ("text",))]
    assert texts == ["shipped", "wikitext2"]


def test_a_quick_run_leaves_it_out_and_says_so() -> None:
    assert CLAIM.units(Setting("quick")) == []
    assert "--budget hour" in CLAIM.read([]).sentence


@pytest.mark.parametrize("budget", ["hour", "paper"])
def test_configs_are_json_and_differ(budget: str) -> None:
    configs = CLAIM.configs(Setting(budget))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs) >= 9
