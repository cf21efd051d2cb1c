"""A NaN is located where it was put: in the data, a layer, a weight, the loss, the backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from linnet.train import TrainingDiverged, fit
from linnet.train.divergence import is_finite, locate_divergence
from tests.train.toy import Letters, settings, small_model

BATCH = {"values": torch.ones(2, 3)}


class Poison(nn.Module):
    def __init__(self, forward: float = 1.0, backward: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.by = (forward, backward)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight * self.by[0]
        if y.requires_grad:
            y.register_hook(lambda g: g * self.by[1])
        return y


def chain(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(*parts), nn.Linear(3, 1))


def began(model: nn.Module, batch: dict[str, Tensor] = BATCH, scale: float = 1.0) -> str:
    def run(given: dict[str, Tensor]) -> Tensor:
        loss = model(given["values"]).sum() * scale
        loss.backward()
        return loss.detach()

    return locate_divergence(model, [batch], run)


def test_in_a_layer_and_not_in_those_after_it() -> None:
    model = chain(nn.Tanh(), Poison(float("nan")), nn.Linear(3, 3))
    assert began(model) == "in layer '1.1' (Poison)"


def test_in_a_weight() -> None:
    model = chain(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad():
        model[1][0].bias[1] = float("inf")
    assert began(model) == "in layer '1.0' (Linear), whose parameter 'bias' is not finite"


def test_in_the_data() -> None:
    bad = {"values": torch.tensor([[1.0, float("nan"), 0.0]])}
    assert began(chain(), bad) == "in the data: 'values' of the batch has a value that is not finite"


def test_in_the_loss() -> None:
    assert began(chain(), scale=float("inf")) == "in the loss itself, where the output of every layer is still finite"


def test_in_the_backward_pass() -> None:
    model = chain(nn.Linear(3, 3), Poison(backward=float("inf")), nn.Linear(3, 3))
    assert began(model) == "in the backward pass, in the gradient of '1.1.weight', with a finite loss"


def test_nothing_here() -> None:
    assert "every single number of this one is finite" in began(chain())


def test_hooks_are_gone_afterwards() -> None:
    model = chain(Poison(float("nan")))
    began(model)
    assert not [m for m in model.modules() if m._forward_hooks]


def test_is_finite_looks_into_tuples_and_leaves_integers_alone() -> None:
    assert is_finite((torch.ones(2), [torch.arange(3)], {"a": None}))
    assert not is_finite((torch.ones(2), {"a": [torch.tensor(float("nan"))]}))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_fit_says_at_which_step_and_layer(accumulate: int) -> None:
    """The second block breaks at step 3: two steps are good, the third is not taken."""
    model = small_model()
    seen = []

    def breaks(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output * float("nan") if len(seen) == 2 and module.training else output

    model.backbone.blocks[1].mlp.register_forward_hook(breaks)
    with pytest.raises(TrainingDiverged) as error:
        fit(
            model,
            Letters(),
            None,
            settings(accumulate=accumulate),
            on_event=lambda e: seen.append(e) if e.kind == "step" else None,
        )
    text = str(error.value)
    assert text.startswith(
        "the loss is nan with a gradient of norm nan at step 3, and it began in layer 'backbone.blocks.1.mlp"
    )
    assert "no checkpoint was written before; start again with a lower lr than 0.01" in text
    assert all(is_finite(p) for p in model.parameters())  # the optimizer never saw it


def test_weights_that_the_optimizer_blew_up_are_not_saved(tmp_path: object) -> None:
    config = settings(lr=3e38, clip=0.0, warmup=0, schedule="constant", save_every=1, weight_decay=10.0)
    with pytest.raises(TrainingDiverged, match=r"a weight is not finite at step 1, and it began in 'embed.weight'"):
        fit(small_model(), Letters(), None, config, out=tmp_path)
    assert not (tmp_path / "latest").exists()
