"""Activation checkpointing: the same gradients bit for bit, dropout included, in less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.models import LanguageModel
from linnet.models.activations import recomputed
from tests.train.toy import Letters, small_model


def gradients(model: LanguageModel, enabled: bool) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    with recomputed(model.blocks, enabled):
        model.loss(Letters().batch(range(6)))[0].backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


SHARING = {"mixer": ("rwkv7", "channel_mix"), "n_layers": 4, "mixer_options": {"rwkv7": {"value_residual": True}}}


@pytest.mark.parametrize("fields", [*({"mixer": x} for x in ("elu", "rebased", "softmax", "conv")), SHARING], ids=str)
def test_gradients_are_the_same_bits(fields: dict[str, Any]) -> None:
    model = small_model(**fields)
    plain, light = gradients(model, False), gradients(model, True)
    assert all(torch.equal(plain[name], light[name]) for name in plain)
    assert all(g.abs().sum() > 0 for g in light.values())


def test_less_is_kept() -> None:
    """Return the bytes that autograd holds between forward and backward, without the weights."""

    def kept(enabled: bool) -> int:
        model = small_model(n_layers=4, d_model=32)
        own = {p.data_ptr() for p in model.parameters()}
        sizes: dict[int, int] = {}

        def pack(x: Tensor) -> Tensor:
            if x.data_ptr() not in own:
                sizes[x.data_ptr()] = x.nbytes
            return x

        with recomputed(model.blocks, enabled), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            total, _ = model.loss(Letters(seq_len=64).batch(range(8)))
        assert total.requires_grad
        return sum(sizes.values())

    assert kept(True) < kept(False) / 4


def test_blocks_are_themselves_again() -> None:
    model = small_model()
    with recomputed(model.blocks):
        assert all("forward" in vars(block) for block in model.blocks)
        names = list(model.state_dict())
        with torch.no_grad():
            model.eval()(torch.zeros(1, 3, dtype=torch.long))
    assert not any("forward" in vars(block) for block in model.blocks)
    assert names == list(model.state_dict())
