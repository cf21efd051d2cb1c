"""The training step of the recall model: materialised ReBased is ReBased, and what is counted is what the model has."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from linnet.labs.bench import recall
from linnet.labs.bench.recall import (
    BASELINES,
    CHANGES,
    INDEXED,
    MATERIALISED,
    PRODUCTS,
    RecallSettings,
    batch,
    model,
    race,
    step_flops,
    subject,
)

CLOSE = {torch.float64: 1e-10, torch.float32: 1e-4}  # of the largest number; float32 is the native kernel
TINY: dict[str, Any] = {"d_model": 32, "n_heads": 2, "key_dim": 8, "vocab_size": 17}


@pytest.mark.parametrize("name", MATERIALISED)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("length", [70, 256])
def test_materialised_features_give_the_loss_and_gradients_of_the_kernel(
    name: str, length: int, dtype: torch.dtype
) -> None:
    ours, theirs = model("rebased", **TINY).to(dtype), model(name, **TINY).to(dtype)
    for p in ours.parameters():  # gamma and beta too leave where they start
        p.data += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
    theirs.load_state_dict(ours.state_dict())
    data = batch(length, 2 * length, 17)
    (total, count), (other, same) = ours.loss(data), theirs.loss(data)
    assert count == same == 2 * -(-length // 4)
    assert abs((other / total).item() - 1) < CLOSE[dtype]
    total.backward()
    other.backward()
    result = dict(theirs.named_parameters())
    for key, p in ours.named_parameters():
        grad, again = p.grad, result[key].grad
        assert grad is not None
        assert again is not None
        assert grad.abs().max() > 0
        assert (grad - again).abs().max() < CLOSE[dtype] * grad.abs().max(), key


def test_one_position_in_four_has_a_target() -> None:
    data = batch(32, 64, 17)
    assert data["tokens"].shape == data["targets"].shape == (2, 32)
    scored = data["targets"] != -100
    assert scored.sum() == 16
    assert data["targets"][scored].unique().numel() > 4


def test_flops_are_those_of_the_matrices_and_the_attention() -> None:
    matrices = 6 * (64 * 64 + 64 * (16 + 16 + 64) + 64 * 64 + 256 * 64 / 4)
    assert step_flops(model("rebased"), 256, 16384) == 16384 * (matrices + 14 * 136 * 64)
    assert step_flops(model("products loop"), 256, 16384) == 16384 * (matrices + 14 * 136 * 64)
    wider = 6 * 64 * 2 * 48
    assert step_flops(model("softmax"), 255, 1) == matrices + wider + 7 * 128 * 128
    assert step_flops(model("delta"), 256, 1) is None


def test_matrices_counted_are_the_weights_of_the_model() -> None:
    """Every weight but the vectors is a matrix of some layer; the head's is the embedding."""
    net = model("rebased")
    weights = sum(p.numel() for name, p in net.named_parameters() if p.ndim == 2 and name.endswith("weight"))
    taps, head = 64 * 3, 256 * 64
    flops = step_flops(net, 256, 1)
    assert flops is not None
    assert flops - 14 * 136 * 64 == 6 * (weights - taps - head + head / 4)


def test_a_row_follows_from_its_times() -> None:
    before = torch.get_num_threads()
    row = race(RecallSettings(threads=1, tokens=128, rounds=3, lengths=(64,)), 64, **TINY)
    torch.set_num_threads(before)
    assert list(row["mixers"]) == list(CHANGES)
    entries = row["mixers"]
    fastest = {names: min(entries[name]["min_s"] for name in names) for names in (INDEXED, PRODUCTS)}
    for entry in entries.values():
        assert entry["ratio"] == pytest.approx(entries["softmax"]["min_s"] / entry["min_s"])
        assert entry["ratio_indexed"] == pytest.approx(fastest[INDEXED] / entry["min_s"])
        assert entry["ratio_products"] == pytest.approx(fastest[PRODUCTS] / entry["min_s"])
        assert abs(entry["loss"] - math.log(17)) < 0.5
    losses = {entries[name]["loss"] for name in ("rebased", *MATERIALISED)}
    assert max(losses) - min(losses) < 1e-5
    json.dumps(row, allow_nan=False)


def test_a_step_learns() -> None:
    one = subject("rebased", 32, 64, **TINY)
    first = one.step()
    for _ in range(20):
        last = one.step()
    assert last < first


def test_ratios_only_to_what_has_run() -> None:
    before = torch.get_num_threads()
    settings = RecallSettings(threads=1, tokens=64, rounds=3, lengths=(64,), mixers=("rebased", "products loop"))
    entry = race(settings, 64, **TINY)["mixers"]["rebased"]
    torch.set_num_threads(before)
    assert set(BASELINES) & set(entry) == {"ratio_products"}
    assert recall.QUICK["rounds"] == 3
