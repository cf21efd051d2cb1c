"""Learning rates against their formulas, the plateau rule by hand, and which parameters decay."""

from __future__ import annotations

from math import cos, pi

import pytest
import torch
from torch import nn

from linnet.train.config import TrainConfig
from linnet.train.optim import Plateau, learning_rate, make_optimizer, set_learning_rate, split_parameters
from tests.train.toy import small_model


def test_warmup_then_cosine() -> None:
    config = TrainConfig(steps=12, warmup=4, lr=1.0, min_lr=0.2, schedule="cosine")
    assert [learning_rate(i, config) for i in range(4)] == [0.25, 0.5, 0.75, 1.0]
    for i in range(4, 12):
        assert learning_rate(i, config) == pytest.approx(0.2 + 0.8 * (1 + cos(pi * (i - 4) / 8)) / 2, rel=1e-12)
    assert learning_rate(12, config) == pytest.approx(0.2)


def test_linear_and_constant() -> None:
    config = TrainConfig(steps=4, lr=1.0, min_lr=0.0, schedule="linear")
    assert [learning_rate(i, config) for i in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert {learning_rate(i, TrainConfig(schedule="constant", lr=0.5)) for i in range(1000)} == {0.5}


def test_warmup_of_all_steps() -> None:
    config = TrainConfig(steps=4, warmup=4, lr=1.0)
    assert [learning_rate(i, config) for i in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_plateau_halves_after_patience() -> None:
    config = TrainConfig(schedule="plateau", eval_every=1, plateau_patience=2, lr=1.0, min_lr=0.3)
    plateau, rates = Plateau(), []
    for loss in [3.0, 2.0, 2.0, 1.99995, 1.5, 1.6, 1.7, 1.8, 1.9]:
        plateau = plateau.update(loss, config)
        rates.append(learning_rate(0, config, plateau))
    # 1.99995 is not better than 2 by a ten-thousandth: the second bad one in a row; then two more pairs of bad ones
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3]
    assert plateau.cuts == 3


def test_norms_biases_and_vectors_do_not_decay() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 4), "norm": nn.LayerNorm(4), "map": nn.Module()})
    model["map"].gamma = nn.Parameter(torch.ones(2, 3))  # per head, and a gain all the same
    decay, rest = split_parameters(model, decay_all=False)
    assert [tuple(p.shape) for p in decay] == [(4, 3)]
    assert len(rest) == 4
    decay, rest = split_parameters(model, decay_all=True)
    assert (len(decay), rest) == (5, [])
    model["a"].weight.requires_grad_(False)
    assert split_parameters(model, decay_all=False)[0] == []


def test_no_trainable_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match="the model Linear has no trainable parameter"):
        split_parameters(nn.Linear(2, 2).requires_grad_(False), decay_all=False)


@pytest.mark.parametrize("name", ["adamw", "radam"])
def test_optimizers_are_torchs_with_decoupled_decay(name: str) -> None:
    """One matrix, one vector: each against torch's own, the matrix with decay and the vector without."""
    config = TrainConfig(optimizer=name, lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3)
    start, grads = torch.randn(3, 2), [torch.randn(3, 2) for _ in range(8)]
    ours = nn.ParameterDict({"w": nn.Parameter(start.clone()), "bias": nn.Parameter(start.clone())})
    theirs = [nn.Parameter(start.clone()) for _ in range(2)]
    optimizer = make_optimizer(ours, config)
    kind, how = (torch.optim.RAdam, {"decoupled_weight_decay": True}) if name == "radam" else (torch.optim.AdamW, {})
    others = [kind([p], 0.05, (0.8, 0.9), 1e-6, d, **how) for p, d in zip(theirs, (0.3, 0.0), strict=True)]
    set_learning_rate(optimizer, 0.05)
    for g in grads:
        for p in (*ours.values(), *theirs):
            p.grad = g.clone()
        for o in (optimizer, *others):
            o.step()
    for p, wanted in zip((ours["w"], ours["bias"]), theirs, strict=True):
        torch.testing.assert_close(p, wanted, rtol=2e-5, atol=1e-6)
    assert not torch.allclose(ours["w"], ours["bias"], atol=1e-3)


def test_a_model_of_ours_splits_into_matrices_and_vectors() -> None:
    model = small_model(mixer="rebased")
    _, rest = split_parameters(model, decay_all=False)
    names = {name for name, p in model.named_parameters() if any(p is q for q in rest)}
    assert {name.split(".")[-1] for name in names} >= {"bias", "gamma", "beta"}
    assert "backbone.norm.weight" in names
    assert not [name for name in names if name.endswith(("qkv.weight", "up.weight", "embed.weight"))]
