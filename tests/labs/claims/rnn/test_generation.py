"""What latency and throughput share: where an image is looked at, sums over positions, and that all of it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.generate import TorchEngine
from linnet.labs.claims.rnn import equal_time, latency, throughput
from linnet.labs.claims.rnn.generation import image_seconds, linear_model, mixer_fields, size
from linnet.labs.claims.rnn.image_decode_timing import TENTHS, blocks, engine_stepper
from linnet.labs.claims.rnn.streams import engine_calls
from linnet.labs.core.claim import UNTESTED, Claim, Setting
from linnet.labs.core.results import key

CLAIMS = [latency.CLAIM, throughput.CLAIM, equal_time.CLAIM]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_smoke_units_run_and_are_read(claim: Claim, tmp_path: Path) -> None:
    units = claim.units(Setting("smoke", tmp_path))
    rows = [row for unit in units for row in unit.function(unit.work)]
    assert [row["config"] for row in rows] == [unit.configs[0] for unit in units]
    assert all(len(json.dumps(row, allow_nan=False)) < 5000 for row in rows)
    assert claim.read(rows).outcome == UNTESTED  # tiny models, one seed: no verdict rests on them


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
@pytest.mark.parametrize("budget", ["smoke", "quick", "hour", "paper"])
@pytest.mark.parametrize("data", [frozenset(), frozenset({"cifar10"})], ids=["no data", "cifar10"])
def test_configurations_are_json_and_differ(claim: Claim, budget: str, data: frozenset[str]) -> None:
    configs = claim.configs(Setting(budget, data=data))
    assert [json.loads(json.dumps(config)) for config in configs] == configs
    assert len({key(config) for config in configs}) == len(configs)
    assert all(unit.alone for unit in claim.units(Setting(budget, data=data)))


def test_both_claims_share_the_rows_of_recomputing() -> None:
    ours, theirs = ({key(c) for c in claim.configs(Setting("quick"))} for claim in CLAIMS[:2])
    assert len(ours & theirs) == 2


@pytest.mark.parametrize("tokens", [784, 3072, 40])
def test_blocks_lie_in_their_tenth(tokens: int) -> None:
    for steps in (1, 12, 10_000):
        result = blocks(tokens, steps)
        assert len(result) == TENTHS
        for i, (first, count) in enumerate(result):
            assert i * tokens / TENTHS - 0.5 <= first
            assert first + count <= (i + 1) * tokens / TENTHS + 0.5
    assert sum(count for _, count in blocks(tokens, tokens)) == tokens
    first, count = blocks(3072, 12)[0]
    assert first + count / 2 == pytest.approx(3072 / 20, abs=1)


def test_an_image_is_the_sum_of_its_passes() -> None:
    def cost(n: int) -> float:
        return 0.5 + 0.01 * n + 0.002 * n * n

    seconds = {str(n): [cost(n), 2 * cost(n)] for n in (10, 40, 80)}
    row: dict[str, Any] = {"config": {"tokens": 80}, "metrics": {"seconds": seconds}}
    wanted = sum(cost(n) for n in range(1, 81))
    assert image_seconds(row) == pytest.approx([wanted, 2 * wanted])


def test_lsh_has_the_papers_buckets() -> None:
    assert mixer_fields("mnist", "softmax") == {"mixer": "softmax"}
    options = mixer_fields("cifar10", "lsh-4")["mixer_options"]["lsh"]
    assert options == {"rounds": 4, "n_buckets": 64, "span": 37}


def test_a_run_of_the_engine_leaves_its_row_where_it_was() -> None:
    engine = TorchEngine(linear_model(size("mnist", smoke=True)))
    (row,) = engine.add()
    drawn = torch.arange(20)
    engine.read(drawn[:5], row)
    assert engine_stepper(engine, row, drawn)(5, 10) > 0
    assert int(engine.state([row]).position) == 5
    assert engine.rows == [row]


def test_streams_have_read_what_lies_before_them() -> None:
    model = linear_model(size("mnist", smoke=True))
    engine = TorchEngine(model)
    calls = engine_calls(engine, model, {"early": 0, "late": 30}, torch.arange(3))
    assert engine.state(engine.rows).position.tolist() == [0, 0, 0, 30, 30, 30]
    for call in calls.values():
        assert call().shape[0] == 3
