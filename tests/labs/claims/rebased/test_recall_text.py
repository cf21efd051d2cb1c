"""Recall-split language models: what the claim reads from made-up losses, the bigram table by hand, smoke units."""

from __future__ import annotations

import gzip
import json
from math import log
from pathlib import Path

import pytest
import torch

from linnet.labs.claims.rebased.recall_text import CLAIM
from linnet.labs.core.claim import NO, UNTESTED, YES, Setting
from linnet.labs.core.licence import licence
from linnet.labs.core.results import key
from linnet.labs.core.verdicts import SEEN
from linnet.labs.recall.language_config import TextConfig
from linnet.labs.recall.language_table import by_table, first_counts
from linnet.labs.recall.language_text import prepared
from linnet.labs.recall.tasks import Bigrams
from tests.labs.recall.made_up_text import rows


def test_the_numbers_are_gaps_in_nats_the_deciding_one_first() -> None:
    finding = CLAIM.read(rows(0.5, 0.45, noise=0.0))
    assert (finding.outcome, finding.scope) == (SEEN, "0.18 million parameters, 600 steps on some, 3 seeds")
    assert [round(number.ours, 6) for number in finding.numbers] == [0.35, 0.45, 0.1, 0.5, 0.1, -0.05, 1.0]
    assert "gap of ReBased to softmax on recall hits less that elsewhere" in finding.numbers[0].what
    assert finding.charts[0].series["bigram table"][0][:2] == ("on recall hits", 3.0)  # type: ignore[union-attr]
    assert "gap of Based" in CLAIM.read(rows(0.05, 0.5)).numbers[0].what  # one that is not behind there is enough
    assert CLAIM.read(rows(0.05, 0.5)).evidence.state == NO


def test_what_is_held_back_says_why_and_keeps_its_tables() -> None:
    finding = CLAIM.read(rows(0.5, 0.45, table=1.9))
    assert (finding.outcome, finding.evidence.state) == (UNTESTED, YES)
    assert "by -0.100 [-0.100, -0.100] nats; more than 0 is needed" in licence(finding.evidence).reason
    assert len(finding.tables) == 2
    assert len(CLAIM.read(rows(0.5, 0.45)[:6]).tables) == 2  # two seeds


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
        assert len(row["metrics"]["curve"]) == 3  # of three steps
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
