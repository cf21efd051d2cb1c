"""The steps by hand give the numbers of the models, and softmax sees as many tokens as it is said to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.labs.bench.decode_limits import weights_of
from linnet.labs.bench.decode_race import answers, ends, random_model, softmax_model
from linnet.labs.bench.decode_torch import LinearStep, SoftmaxStep, TorchStep, cache_bytes
from linnet.labs.bench.reference import relative
from linnet.models import ImageModel, build, preset

TOLERANCE = 1e-5  # float32 against float64
TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}


def tiny() -> ImageModel:
    return random_model("mnist", **TINY)


def stepped(by_hand: TorchStep, tokens: Tensor) -> Tensor:  # [B,T] -> [B,T,P]
    return torch.stack([by_hand.step(x) for x in tokens.T], dim=1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_steps_are_the_model_in_float64(kind: str, batch: int) -> None:
    model = tiny() if kind == "linear" else softmax_model(tiny())
    tokens = torch.randint(256, (batch, 12), generator=torch.Generator().manual_seed(1))
    by_hand = LinearStep(model, batch) if kind == "linear" else SoftmaxStep(model, batch, 12)
    assert relative(ends(stepped(by_hand, tokens)), answers(model, tokens)) < TOLERANCE


def test_attention_matters_in_what_is_compared() -> None:
    """Linear and softmax attention on the same weights differ by far more than the tolerance."""
    model, tokens = tiny(), torch.arange(12)[None]
    assert relative(answers(softmax_model(model), tokens), answers(model, tokens)) > 1000 * TOLERANCE


def test_held_softmax_sees_exactly_so_many_tokens() -> None:
    by_hand = SoftmaxStep(softmax_model(tiny()), 2, 40)
    by_hand.fill(30)
    token = torch.tensor([3, 4])
    first = by_hand.step(token)
    for keys, values in by_hand.caches:
        keys[:, :, 30:], values[:, :, 30:] = torch.nan, torch.nan
    assert torch.equal(by_hand.step(token), first)  # neither later slots nor the step before are seen
    by_hand.caches[0][1][:, :, 0] += 1
    assert not torch.equal(by_hand.step(token), first)
    by_hand.hold(7)
    assert by_hand.position == 6
    assert not torch.equal(by_hand.step(token), first)


def test_bytes_are_those_of_the_models_own_state() -> None:
    model = softmax_model(tiny())
    by_hand = SoftmaxStep(model, 3, 50)
    assert cache_bytes(model, 3, 50) == sum(x.nbytes for pair in by_hand.caches for x in pair)
    by_hand.fill(20)
    assert by_hand.state_bytes == 3 * model.state_bytes(20)


def test_weights_read_are_all_but_embedding_norms_and_biases() -> None:
    model = tiny()
    per_layer = 4 * 32 * 32 + 2 * 32 * 64
    assert weights_of(model) == 2 * per_layer + 32 * 30


def test_another_network_is_refused() -> None:
    model = build(preset("digits"))
    assert isinstance(model, ImageModel)
    with pytest.raises(ValueError, match="accepted: the presets mnist and cifar10"):
        LinearStep(model, 1)
