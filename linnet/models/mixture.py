"""Discretised mixture of K logistics for a pixel: log-probability, and a sampler from exactly that distribution.

    P(v) = sum_k w_k [S((x_v + h - m_k) / s_k) - S((x_v - h - m_k) / s_k)],   x_v = 2 v / (L - 1) - 1,  h = 1 / (L - 1)

S is the logistic sigmoid; the bins of v = 0 and v = L - 1 extend to infinity, so the L probabilities sum to 1.
Salimans et al. 2017 (PixelCNN++), arXiv:1701.05517; one byte at a time as in Katharopoulos et al., arXiv:2006.16236.
params [...,3K]: logits of w, means m, log s, K each; values [...] long in 0..L-1. Computed in float32 or wider.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

# The paper clamps log s from below; the upper bound only keeps exp finite (a bin of such a logistic has mass e^-40).
LOG_SCALE = (-7.0, 40.0)


def log_prob(params: Tensor, values: Tensor, *, levels: int = 256) -> Tensor:
    """Return log P(values) in nats: params [...,3K], values [...] -> [...].

    It uses S(a) - S(b) = S(a) S(-b) (1 - e^(b-a)), which is exact: unlike the difference of two sigmoids it does not
    cancel, and narrow logistics need no approximation.
    """
    check_values(params, values, levels)
    logits, mean, log_scale = _split(params)
    inverse = torch.exp(-log_scale)
    half = 1.0 / (levels - 1)
    x = (values.to(mean.dtype) * (2 * half) - 1)[..., None]
    below = logsigmoid((x + half - mean) * inverse)  # [...,K] log S(a): the mass below the upper edge
    above = logsigmoid((mean - x + half) * inverse)  # [...,K] log S(-b): the mass above the lower edge
    width = torch.log(-torch.expm1(-2 * half * inverse))  # [...,K] log(1 - e^(b-a))
    first, last = (values == 0)[..., None], (values == levels - 1)[..., None]
    bins = torch.where(first, below, torch.where(last, above, below + above + width))
    return torch.logsumexp(log_softmax(logits, dim=-1) + bins, dim=-1)


def log_probs(params: Tensor, *, levels: int = 256) -> Tensor:
    """Return log P of every value: [...,3K] -> [...,L]; their exp sums to 1."""
    values = torch.arange(levels, device=params.device).expand(*params.shape[:-1], levels)
    return log_prob(params[..., None, :].expand(*params.shape[:-1], levels, params.shape[-1]), values, levels=levels)


def sample(
    params: Tensor,
    generator: torch.Generator | None = None,
    *,
    levels: int = 256,
    uniforms: Tensor | None = None,
) -> Tensor:
    """Sample from P: a component, a point of its logistic, the bin of that point. [...,3K] -> [...] long.

    The scale is exp(log s), clamped as in `log_prob`; the paper's released code samples with elu(y) + 1.0001 instead.
    `uniforms` [...,2] determine component and point; by default they come from `generator`.
    """
    which, where = two_uniforms(params, generator, uniforms).unbind(-1)
    logits, mean, log_scale = _split(params.detach().double())
    points = torch.addcmul(mean, log_scale.exp(), torch.logit(where).unsqueeze(-1))  # [...,K] one of each logistic
    x = points.gather(-1, choose(logits, which).unsqueeze(-1)).squeeze(-1)
    return torch.round((x + 1) * ((levels - 1) / 2)).clamp_(0, levels - 1).long()


def choose(scores: Tensor, u: Tensor) -> Tensor:
    """Return an index drawn from softmax(scores): where its cumulative sum passes u in [0,1). [...,N] -> [...] long."""
    heights = torch.softmax(scores, -1).cumsum(-1).narrow(-1, 0, scores.shape[-1] - 1)  # the last is 1, always above u
    return (heights <= u.unsqueeze(-1)).sum(-1)


def two_uniforms(params: Tensor, generator: torch.Generator | None = None, given: Tensor | None = None) -> Tensor:
    """Return uniforms [...,2] for params [...,P], drawn or given; in float64, since float32 cuts the tails at e^-17."""
    shape = (*params.shape[:-1], 2)
    if given is None:
        return torch.rand(shape, dtype=torch.float64, device=params.device, generator=generator)
    if given.shape != shape or given.dtype != torch.float64:
        raise ValueError(f"uniforms are {given.dtype} {list(given.shape)}; accepted: torch.float64 {list(shape)}")
    return given


def bits_per_dim(nats: float, count: float) -> float:
    """Convert nats of `count` values to bits per value."""
    return nats / (count * log(2))


def check_values(params: Tensor, values: Tensor, levels: int) -> None:
    """Raise ValueError for widths, shapes and values that `log_prob` would misread."""
    if levels < 2:
        raise ValueError(f"levels is {levels}; accepted: an integer >= 2, the number of values a pixel can take")
    if params.ndim == 0 or params.shape[-1] == 0 or params.shape[-1] % 3:
        width = params.shape[-1] if params.ndim else "no axis"
        raise ValueError(f"params have width {width}; accepted: 3 K, the weights, means and log-scales of K logistics")
    if values.shape != params.shape[:-1] or values.is_floating_point():
        got = f"{values.dtype} {list(values.shape)}"
        raise ValueError(
            f"values are {got}; accepted: integers of shape {list(params.shape[:-1])}, that of params[...,0]"
        )
    if torch.compiler.is_compiling() or values.is_meta or not values.numel():
        return
    worst = [v for v in (int(values.min()), int(values.max())) if not 0 <= v < levels]
    if worst:
        raise ValueError(f"a value is {worst[-1]}; accepted: 0..{levels - 1}, or more levels")


def _split(params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, means and clamped log-scales, [...,K] each, float32 or wider."""
    if params.dtype not in (torch.float32, torch.float64):
        params = params.float()
    logits, mean, log_scale = params.chunk(3, dim=-1)
    return logits, mean, log_scale.clamp(*LOG_SCALE)
