"""RecallConfig: goes to a row's configuration and back, and refuses what cannot run before anything does."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.core.results import key
from linnet.labs.recall.config import TEST_ROWS, RecallConfig


def test_there_and_back() -> None:
    config = RecallConfig(mixer="delta", options={"conv": 0}, key_dim=15, lr=3e-3, seed=2, probes=("longer",))
    assert RecallConfig.from_dict(config.to_dict()) == config
    assert config.to_dict()["experiment"] == "recall"


def test_only_what_differs_from_the_default_is_in_the_key() -> None:
    """So that a field added later leaves the rows of today known by the same key."""
    plain = RecallConfig().to_dict()
    assert "filler" not in plain
    assert "options" not in plain
    assert {"mixer", "d_model", "seq_len", "pairs", "lr", "seed", "steps"} <= plain.keys()
    assert key(RecallConfig(filler="random").to_dict()) != key(plain)


def test_the_model_is_a_convolution_and_the_mixer() -> None:
    model = RecallConfig(mixer="rebased", key_dim=5).model()
    assert (model.mixers, model.mlp, model.tie_embeddings) == (("conv", "rebased"), "none", True)
    assert RecallConfig(first="", depth=2).model().mixers == ("rebased", "rebased")
    assert RecallConfig(depth=2).model().mixers == ("conv", "rebased", "conv", "rebased")


def test_paired_seeds_see_the_same_sequences_whatever_the_mixer() -> None:
    a, b = (RecallConfig(mixer=name, seed=3).source("train").batch([5, 9])["tokens"] for name in ("elu", "softmax"))
    assert a.equal(b)
    assert not a.equal(RecallConfig(mixer="elu", seed=4).source("train").batch([5, 9])["tokens"])


def test_held_out_rows_are_two_halves() -> None:
    assert RecallConfig().source("test").length == 2 * TEST_ROWS
    assert RecallConfig(examples=100).source("train").length == 100


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vocab_size": 64}, "vocab_size 64 is not above seq_len 64"),
        ({"pairs": 17}, "at most 16 pairs"),
        ({"seq_len": 65}, "seq_len is 65; accepted: even"),
        ({"mixer": "rebazed"}, "did you mean 'rebased'"),
        ({"task": "mqr"}, "did you mean 'mqar'"),
        ({"depth": 0}, "depth is 0"),
        ({"stop_at": 2.0}, "stop_at is 2.0"),
        ({"lr": 0.0}, "lr is 0.0"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RecallConfig(**change)


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'filler'"):
        RecallConfig().replace(fillers="zero")
