"""The mixture of logistics: a distribution, a sampler from it, correct gradients, finite everywhere."""

from __future__ import annotations

from math import log

import pytest
import torch
from torch import Tensor

from linnet.models.mixture import LOG_SCALE, bits_per_dim, log_prob, log_probs, sample

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}


def draw(*shape: int, k: int = 10, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw weights, means inside and outside [-1, 1], and scales from a tenth of a bin to the whole range."""
    g = torch.Generator().manual_seed(seed)
    logits, mean, log_scale = (torch.randn(*shape, k, generator=g, dtype=torch.float64) for _ in range(3))
    return torch.cat([logits, 0.7 * mean, 2 * log_scale - 3], dim=-1).to(dtype)


def plain(params: Tensor, value: int, levels: int) -> float:
    """Return P(value) of one pixel as the difference of two sigmoids, component by component, in float64."""
    logits, mean, log_scale = params.double().chunk(3)
    x, h, total = 2 * value / (levels - 1) - 1, 1 / (levels - 1), 0.0
    for w, m, ls in zip(logits.softmax(0), mean, log_scale.clamp(min=-7), strict=True):
        upper = 1.0 if value == levels - 1 else float(torch.sigmoid((x + h - m) / ls.exp()))
        lower = 0.0 if value == 0 else float(torch.sigmoid((x - h - m) / ls.exp()))
        total += float(w) * (upper - lower)
    return total


@pytest.mark.parametrize("levels", [2, 17, 256])
def test_it_is_the_difference_of_two_sigmoids(levels: int) -> None:
    params = draw(3)
    params[:, -10:] = params[:, -10:].clamp(min=-4)  # where the plain difference is still accurate
    got = log_probs(params, levels=levels).exp()
    want = [[plain(row, v, levels) for v in range(levels)] for row in params]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("levels", [2, 17, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_sum_to_one(levels: int, dtype: torch.dtype) -> None:
    total = log_probs(draw(50, dtype=dtype), levels=levels).double().exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)


def test_single_precision_is_close_to_double() -> None:
    params = draw(40, dtype=torch.float32)
    values = torch.arange(40) * 6
    torch.testing.assert_close(log_prob(params, values).double(), log_prob(params.double(), values), **SINGLE)
    assert log_prob(params.bfloat16(), values).dtype == torch.float32


@pytest.mark.parametrize("levels", [17, 256])
def test_samples_come_from_what_the_loss_scores(levels: int) -> None:
    """Compare by Pearson's chi-square over the values expected at least ten times, wide scales (log s > 0) included."""
    params = torch.tensor([0.5, -0.3, 0.0, -0.4, 0.9, 0.1, -3.0, -2.0, 0.8], dtype=torch.float64)
    n = 200_000
    drawn = sample(params.expand(n, 9), torch.Generator().manual_seed(1), levels=levels)
    expected = n * log_probs(params, levels=levels).exp()
    seen = torch.bincount(drawn, minlength=levels).double()
    assert drawn.dtype == torch.long
    assert seen.shape == (levels,)
    often = expected >= 10
    freedom = int(often.sum()) - 1
    chi = ((seen - expected) ** 2 / expected)[often].sum()
    assert freedom >= 16
    assert abs(float(chi) - freedom) < 4 * (2 * freedom) ** 0.5


def test_sampling_follows_its_generator_and_clamps_the_scale() -> None:
    params = draw(5, 7)
    first, again, other = (sample(params, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (5, 7)
    narrow = torch.tensor([0.0, 0.0, -1000.0]).expand(2000, 3)  # clamped: s = e^-7, a bin is 2/255 wide
    share = (sample(narrow, torch.Generator().manual_seed(0))[:, None] == torch.tensor([127, 128])).float().mean(0)
    torch.testing.assert_close(share, log_probs(narrow[0])[[127, 128]].exp(), rtol=0, atol=0.05)


@pytest.mark.parametrize("levels", [17, 256])
def test_gradients(levels: int) -> None:
    params = draw(4, k=3).requires_grad_()
    values = torch.tensor([0, levels // 2, 3, levels - 1])
    assert torch.autograd.gradcheck(lambda p: log_prob(p, values, levels=levels), (params,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [20.0, 1e4])
def test_extreme_parameters_stay_finite(dtype: torch.dtype, size: float) -> None:
    corners = torch.cartesian_prod(*[torch.tensor([-size, 0.0, size], dtype=dtype)] * 3)  # [27,3]
    params = torch.cat([corners, corners.flip(0)], dim=-1)[:, [0, 3, 1, 4, 2, 5]].requires_grad_()
    for value in (0, 1, 128, 254, 255):
        got = log_prob(params, torch.full((27,), value))
        (grad,) = torch.autograd.grad(got.sum(), params)
        assert got.isfinite().all()
        assert grad.isfinite().all()
        assert (got <= 0).all()
    drawn = sample(params, torch.Generator().manual_seed(0))
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) <= 255
    assert LOG_SCALE[0] == -7


def test_bits_per_dim() -> None:
    assert bits_per_dim(784 * log(2), 784) == pytest.approx(1.0)
    assert bits_per_dim(log(256), 1) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("params", "values", "levels", "message"),
    [
        (torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), 256, "width 7; accepted: 3 K"),
        (torch.zeros(2, 6), torch.zeros(3, dtype=torch.long), 256, r"int64 \[3\]; accepted: integers of shape \[2\]"),
        (torch.zeros(2, 6), torch.zeros(2), 256, r"float32 \[2\]; accepted: integers"),
        (torch.zeros(2, 6), torch.tensor([0, 256]), 256, r"a value is 256; accepted: 0\.\.255"),
        (torch.zeros(2, 6), torch.tensor([0, -1]), 17, r"a value is -1; accepted: 0\.\.16"),
        (torch.zeros(2, 6), torch.zeros(2, dtype=torch.long), 1, "levels is 1; accepted"),
    ],
)
def test_bad_input(params: Tensor, values: Tensor, levels: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_prob(params, values, levels=levels)
