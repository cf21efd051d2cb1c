"""Soak and curve: where they look, that the stream is really run, and what is called flat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from mmap import mmap
from typing import Any

import pytest
import torch

from linnet.generate import TorchEngine
from linnet.labs.bench import decode_long
from linnet.labs.bench.decode_long import (
    FLAT_BYTES,
    FLAT_RATIO,
    Stream,
    compare,
    curve,
    decades,
    is_flat,
    positions,
    soak,
)
from linnet.labs.bench.decode_race import random_model, softmax_model
from linnet.models import ImageModel

TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decode_long, "BLOCK", 4)
    monkeypatch.setattr(decode_long, "TURNS", 3)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model() -> ImageModel:
    return random_model("mnist", **TINY)


def test_decades() -> None:
    assert decades(10_000_000) == [100, 1000, 10_000, 100_000, 1_000_000, 10_000_000]
    assert decades(250) == [100, 250]
    assert decades(100) == [100]


def test_positions_are_log_spaced() -> None:
    result = positions(100_000)
    assert (result[0], result[-1], len(result)) == (100, 100_000, 13)
    assert all(b / a == pytest.approx(10**0.25, rel=0.01) for a, b in pairwise(result))
    assert positions(150) == [100, 150]


def test_a_stream_moves_by_what_it_is_run(model: ImageModel) -> None:
    stream, seen = Stream(TorchEngine(model)), []
    stream.run(3)
    stream.run_to(1500, seen.append)
    assert seen == [1003, 1500]
    assert stream.position == int(stream.engine.state(stream.rows).position) == 1500


def test_a_comparison_leaves_the_old_stream_alone_in_the_engine(model: ImageModel) -> None:
    old = Stream(TorchEngine(model))
    old.run(50)
    result = compare(old)
    assert result["ratio"] == pytest.approx(result["old_cpu_us"] / result["new_cpu_us"])
    assert result["ratio_clock"] == pytest.approx(result["old_us"] / result["new_us"])
    assert min(result.values()) > 0
    assert old.engine.rows == old.rows
    assert old.position == int(old.engine.state(old.rows).position) == 50 + 4 * 3


def test_soak(model: ImageModel) -> None:
    reported: list[float] = []
    row = soak(model, tokens=300, threads=1, weights="float32", report=reported.append)
    assert [mark["token"] for mark in row["marks"]] == [100, 300]
    assert reported[-1] == 1.0
    assert row["state_bytes"] == model.state_bytes(300)
    assert row["finite"] is True
    assert row["worst_ratio"] == max(mark["ratio"] for mark in row["marks"])
    sizes = [mark["resident_bytes"] for mark in row["marks"]]
    assert row["growth_bytes"] == (None if sizes[0] is None else sizes[1] - sizes[0])
    assert row["flat"] is is_flat(row["worst_ratio"], row["growth_bytes"])
    json.dumps(row, allow_nan=False)


def test_soak_sees_numbers_that_are_not_finite(model: ImageModel) -> None:
    broken = random_model("mnist", **TINY)
    with torch.no_grad():
        broken.head.bias.fill_(torch.inf)  # type: ignore[union-attr]
    assert soak(broken, tokens=101, threads=1, weights="float32")["finite"] is False


def test_flat_is_both_time_and_memory() -> None:
    assert is_flat(1.0, 0)
    assert is_flat(FLAT_RATIO, FLAT_BYTES)
    assert is_flat(1.0, None)
    assert not is_flat(FLAT_RATIO + 0.01, 0)
    assert not is_flat(1.0, FLAT_BYTES + 1)


def test_resident_memory_grows_with_what_is_held() -> None:
    before = decode_long.resident()
    if before is None:
        pytest.skip("this system does not say")
    held = mmap(-1, 1 << 26)  # pages of its own: malloc may have 64 MiB left from another test
    held.write(b"1" * len(held))
    after = decode_long.resident()
    assert after is not None
    assert after - before > len(held) // 2


def test_curve(model: ImageModel) -> None:
    row = curve(model, context=400, threads=1, weights="float32", rounds=3)
    assert [point["token"] for point in row["points"]] == positions(400)
    assert row["left_out"] is None
    for point in row["points"]:
        assert point["state_bytes"]["linear"] == model.state_bytes(1)
        assert point["state_bytes"]["softmax"] == softmax_model(model).state_bytes(point["token"])
        assert min(point["seconds"].values()) > 0
    json.dumps(row, allow_nan=False)


def test_curve_without_room_for_a_cache(model: ImageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_long, "too_large", lambda size: f"{size:.0f} bytes")
    row = curve(model, context=150, threads=1, weights="float32", rounds=3)
    assert row["left_out"] == f"{2 * 4 * 150 * 32 * 2} bytes"
    assert row["points"][0]["seconds"]["softmax"] is None
    assert row["points"][0]["state_bytes"]["softmax"] is None
