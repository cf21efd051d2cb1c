"""A row of `linnet bench decode`: who is timed, who is not and why, and what follows from the times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.labs.bench import decode_images, decode_race
from linnet.labs.bench.decode_race import CACHE, EAGER, IN_PLACE, RECOMPUTE, TOLERANCES, race, random_model
from linnet.labs.bench.decode_torch import LinearStep
from linnet.native.library import library

TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}
SMALL: dict[str, Any] = {"threads": 1, "batch": 2, "context": 40, "weights": ("float32", "int8"), "rounds": 3}
WEIGHTS = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * 30


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same networks, small."""
    monkeypatch.setattr(decode_race, "random_model", partial(random_model, **TINY))
    yield
    torch.set_num_threads(1)


def test_a_row_follows_from_its_times() -> None:
    row = race("mnist", **SMALL, recompute=True)
    assert (row["preset"], row["threads"], row["batch"], row["context"]) == ("mnist", 1, 2, 40)
    assert row["weights"] == WEIGHTS
    entries = row["competitors"]
    assert list(entries) == ["linnet float32", "linnet int8", EAGER, IN_PLACE, CACHE, RECOMPUTE]
    flops = 2 * WEIGHTS * 2 / (row["sgemm"]["gflops"] * 1e9)
    for name in (EAGER, IN_PLACE, CACHE, RECOMPUTE, *(["linnet float32", "linnet int8"] if library() else [])):
        entry = entries[name]
        assert entry["status"] == "ok", entry
        assert 0 < entry["min_s"] <= entry["median_s"]
        assert entry["us_per_step"] == pytest.approx(entry["min_s"] * 1e6)
        assert entry["tokens_per_s"] == pytest.approx(2 / entry["min_s"])
        assert entry["sgemm_percent"] == pytest.approx(100 * flops / entry["min_s"])
        assert list(entry["faster_than"]) == list(entry["faster_than_median"]) == [EAGER, IN_PLACE, CACHE]
        for base, ratio in entry["faster_than"].items():
            assert ratio == pytest.approx(entries[base]["min_s"] / entry["min_s"])
            assert entry["faster_than_median"][base] == pytest.approx(entries[base]["median_s"] / entry["median_s"])
    json.dumps(row, allow_nan=False)


def test_limits_are_those_of_the_weights_as_they_are_stored() -> None:
    row = race("mnist", **SMALL)
    assert {kind: read["bytes"] for kind, read in row["reads"].items()} == {"float32": 4 * WEIGHTS, "int8": WEIGHTS}
    for read in row["reads"].values():
        assert set(read["ways"]) == {"sum", "dot", *(["native"] if library() else [])}
        assert read["gb_per_s"] == max(read["ways"].values()) == pytest.approx(read["bytes"] / read["min_s"] / 1e9)
    for name, entry in row["competitors"].items():
        kind = "int8" if name == "linnet int8" else "float32"
        if name == CACHE:
            assert "read_percent" not in entry
        elif entry["status"] == "ok":
            assert entry["read_percent"] == pytest.approx(100 * row["reads"][kind]["min_s"] / entry["min_s"])
    for name, alone in row["projections"].items():
        share = 100 * 2 * WEIGHTS * 2 / alone["min_s"] / (row["sgemm"]["gflops"] * 1e9)
        assert alone["sgemm_percent"] == pytest.approx(share), name
    assert set(row["projections"]) == {"torch", *(["linnet float32", "linnet int8"] if library() else [])}


def test_what_answers_wrongly_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: LinearStep, layer: int, packed: Tensor) -> Tensor:
        return packed[:, 2]

    monkeypatch.setattr(LinearStep, "attend", forgetful)
    entries = race("mnist", **SMALL)["competitors"]
    assert entries[IN_PLACE]["status"] == "wrong"
    assert "not timed" in entries[IN_PLACE]["reason"]
    assert "min_s" not in entries[IN_PLACE]
    assert list(entries[EAGER]["faster_than"]) == [EAGER, CACHE]


def test_a_state_that_is_not_updated_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest mistake the check must see: one layer forgets its denominator."""
    real = LinearStep.attend

    def leaky(self: LinearStep, layer: int, packed: Tensor) -> Tensor:
        if layer == 1:
            self.states[1][1].mul_(0.99)
        return real(self, layer, packed)

    monkeypatch.setattr(LinearStep, "attend", leaky)
    assert race("mnist", **SMALL)["competitors"][IN_PLACE]["status"] == "wrong"


def test_refusals_are_kept_as_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_race, "RECOMPUTE_LIMIT", 0.0)
    entries = race("mnist", **{**SMALL, "context": 10**12}, recompute=True)["competitors"]
    assert entries[CACHE]["status"] == "left out"
    assert "GiB of memory, over the limit" in entries[CACHE]["reason"]
    assert "s a step, over the limit" in entries[RECOMPUTE]["reason"]
    assert list(entries[EAGER]["faster_than"]) == [EAGER, IN_PLACE]


def test_what_cannot_run_natively_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.generate.decoder.packed_model.library", lambda: None)
    monkeypatch.setattr("linnet.generate.decoder.packed_model.reason", lambda: "none was built")
    entries = race("mnist", **SMALL)["competitors"]
    assert entries["linnet int8"] == {
        "status": "left out",
        "reason": "the native decoder is not available: none was built",
    }


def test_every_kind_of_weights_has_a_tolerance_and_a_size() -> None:
    assert set(TOLERANCES) == set(decode_race.limits.ITEM_BYTES)


def test_images_are_whole_images() -> None:
    model = decode_race.random_model("mnist")
    how: dict[str, Any] = {"threads": 1, "batch": 3, "weights": ("float32",), "rounds": 3}
    row = decode_images.images("mnist", model, **how, length=5)
    assert (row["tokens"], row["batch"], row["paper_seconds"]) == (5, 3, 5.5)
    entry = row["competitors"][EAGER]
    assert entry["seconds_per_image"] == pytest.approx(entry["min_s"] / 3)
    assert entry["us_per_value"] == pytest.approx(entry["min_s"] / 15 * 1e6)
    assert row["competitors"]["linnet float32"]["status"] == ("ok" if library() else "left out")
    assert decode_images.LENGTHS == {"mnist": 28 * 28, "cifar10": 32 * 32 * 3}
