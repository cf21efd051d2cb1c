"""The shipped models: present, small, as their headers describe them, and as accurate as they should be."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from sklearn.datasets import load_diabetes

from linnet.regress import InContextRegressor, assets, pretrained
from linnet.regress.gram import ridge
from linnet.regress.shipped import NAMES
from tests.regress.problems import problems

MOST = 0.075  # adjusted loss on U5, 4,000 sequences; the paper has .059 to .065 at four layers, .047 at seven
BYTES = 64 * 1024


@pytest.mark.parametrize("name", NAMES)
def test_each_is_the_model_of_its_name(name: str) -> None:
    model = pretrained(name)
    assert (model.config.kind, model.config.d, model.config.n) == (name, 10, 20)
    assert model.config.made, "how it was trained is to be recorded"
    assert model.p.dtype is torch.float64
    assert not model.p.requires_grad
    assert len(files(assets).joinpath(f"{name}.safetensors").read_bytes()) < BYTES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_close_to_the_ridge_that_knows_the_noise(name: str) -> None:
    batch = problems(5.0, 4000, 10, 20, torch.Generator().manual_seed(5))
    oracle = ridge(batch.gram, batch.sigma**2)
    lost = (pretrained(name).weights(batch.gram.s) - batch.weights).square().sum(-1)
    assert 0.5 * (lost - (oracle - batch.weights).square().sum(-1)).mean() < MOST


@pytest.mark.parametrize("name", NAMES)
def test_each_predicts_diabetes_without_ridge(name: str) -> None:
    x, y = load_diabetes(return_X_y=True)
    regressor = InContextRegressor(name).fit(x[:100], y[:100])
    assert regressor.score(x[100:], y[100:]) > 0.4
    assert regressor.fallback_ is None


def test_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown pretrained model 'fulll'; did you mean 'full'"):
        pretrained("fulll")
