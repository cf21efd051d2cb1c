"""Bytes of state to widths: what is asked of the mixer is what it then stores, or a sentence."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.run import Recaller, stored
from linnet.labs.recall.sizes import CLOSE, sized
from linnet.labs.recall.sweep import OPTIONS

SIZED = ("based", "rebased", "elu", "delta", "gated_delta", "gla", "retnet", "mamba2", "window", "hedgehog")


@pytest.mark.parametrize("mixer", SIZED)
def test_the_state_that_is_stored_has_the_size_asked_for(mixer: str) -> None:
    change = sized(mixer, 11_700, d_model=64, length=64, options=OPTIONS.get(mixer))
    config = RecallConfig(mixer=mixer, **change)
    torch.manual_seed(0)
    result = stored(Recaller(config.model()), config)
    assert 1 / CLOSE <= result["mixer_bytes"] / 11_700 <= CLOSE
    assert result["state_bytes"] == result["mixer_bytes"] + 2 * 64 * 4  # and the convolution's two inputs


def test_widths_of_the_quadratic_kernels() -> None:
    """f and f + 1 have equally many features, 1 + f + f (f + 1) / 2 = (f + 1) (f + 2) / 2: the comparison is exact."""
    for f, size in ((2, 1560), (4, 3900), (8, 11_700)):
        assert sized("based", size, d_model=64, length=64)["key_dim"] == f
        assert sized("rebased", size, d_model=64, length=64)["key_dim"] == f + 1


@pytest.mark.parametrize(
    ("mixer", "size", "sentence"),
    [
        ("softmax", 4000, r"'softmax' cannot be given a state of 4,000 bytes: at d_model 64 it has 32,768 after 64"),
        ("rwkv4", 4000, r"'rwkv4' cannot be given a state of 4,000 bytes: at d_model 64 it has [\d,]+; change"),
        ("based", 2_000, r"'based' cannot be given a state of 2,000 bytes at d_model 64; nearest: 1,560 or 2,600"),
        ("elu", 10, r"nearest: 260 or 520"),
    ],
)
def test_a_size_that_cannot_be_given_is_refused(mixer: str, size: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sized(mixer, size, d_model=64, length=64)
