"""Cross attention: the state of a source answers as the source itself would, and does not grow with it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.layers import CrossAttention

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
B, T, S, E, H = 2, 5, 9, 12, 3
READERS = ("elu", "rebased", "taylor", "favor", "softmax")


def layer(mixer: str) -> CrossAttention:
    torch.manual_seed(0)
    return CrossAttention(E, H, mixer=mixer).double()


def inputs(length: int, seed: int) -> Tensor:
    return torch.randn(B, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(cross: CrossAttention, x: Tensor, memory: Tensor) -> Tensor:
    """One query and one key at a time."""
    q = cross.query(x).unflatten(-1, (H, -1))
    k, v = cross.key_value(memory).unflatten(-1, (2, H, -1)).unbind(2)
    if cross.feature_map is None:
        scores = torch.einsum("bthd,bshd->bhts", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
    else:
        scores = torch.einsum("bthf,bshf->bhts", cross.feature_map.map_q(q), cross.feature_map.map_k(k))
        scores = scores / (scores.sum(-1, keepdim=True) + 1e-6)
    return cross.out(torch.einsum("bhts,bshv->bthv", scores, v).flatten(2))


@pytest.mark.parametrize("mixer", READERS)
def test_reading_the_state_is_attending_to_the_source(mixer: str) -> None:
    cross, x, memory = layer(mixer), inputs(T, 1), inputs(S, 2).requires_grad_()
    out = cross(x, cross.source_state(memory))
    wanted = by_hand(cross, x, memory)
    torch.testing.assert_close(out, wanted, **CLOSE)
    given = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        torch.autograd.grad(out, memory, given)[0], torch.autograd.grad(wanted, memory, given)[0], **CLOSE
    )
    token = cross(x[:, 0], cross.source_state(memory))
    torch.testing.assert_close(token, out[:, 0], **CLOSE)


@pytest.mark.parametrize("mixer", READERS)
def test_padding_in_the_source_is_not_read(mixer: str) -> None:
    cross, x, memory = layer(mixer), inputs(T, 1), inputs(S, 2)
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[1, 4:] = False
    out = cross(x, cross.source_state(memory, mask))
    torch.testing.assert_close(out[1:], cross(x[1:], cross.source_state(memory[1:, :4])), **CLOSE)


@pytest.mark.parametrize("mixer", [m for m in READERS if m != "softmax"])
def test_a_longer_source_has_a_state_of_the_same_size(mixer: str) -> None:
    cross = layer(mixer)
    assert cross.source_state(inputs(3, 2)).nbytes == cross.source_state(inputs(300, 2)).nbytes


def test_a_mixer_that_cannot_is_refused() -> None:
    with pytest.raises(ValueError, match="mixer 'window' cannot attend to another sequence"):
        CrossAttention(E, H, mixer="window")
