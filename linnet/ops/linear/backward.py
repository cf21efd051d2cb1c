"""The backward pass of chunked linear attention: one pass in each direction, one state at a time, O(T) memory.

    gn_t = inv_t g_t,   h_t = -gn_t.out_t  (0 when not normalized),   W = tril(gn v^T + h 1^T),   A = tril(scores)
    dphi_q = W phi_k + gn S^T + h z       dphi_k = W^T phi_q + v R^T + 1 r       dv = A^T gn + phi_k R

S, z come from the left as in the forward pass, R = gs + sum phi_q gn^T and r = gz + sum h phi_q from the right.
With a closed-form kernel, W enters dq and dk through the slope of the kernel instead of through the features.
Katharopoulos et al. 2020, arXiv:2006.16236, section 3.3.1, with the denominator added. Shapes, letters: chunks.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .chunks import Batch, Rule, Sums, dot_products, fill, load, padding, scores, spans, tokens


class Upstream(NamedTuple):
    """The results of the forward pass, and the gradient of its output."""

    g: Tensor  # [B,Tq,H,V], of out
    out: Tensor  # [B,Tq,H,V]
    inv: Tensor  # [B,Tq,H]

    def of(self, b: Batch, rule: Rule, at: slice, pad: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return gn [N,C,V] and h [N,C] of one chunk: the gradients of its numerators and denominators."""
        tau = load(self.inv[:, at, :, None], pad, b.dtype)
        gn = load(self.g[:, at], pad, b.dtype) * tau
        if not rule.normalize:
            return gn, torch.zeros_like(tau[..., 0])
        return gn, -(gn * load(self.out[:, at], pad, b.dtype)).sum(-1)


def chunked_backward(
    g: Tensor, gs: Tensor | None, gz: Tensor | None, b: Batch, out: Tensor, inv: Tensor, rule: Rule
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return dq, dk, dv, ds0, dz0 from the gradients g of out and gs, gz of the final state.

    Only differentiable operations are used, so that the gradient can be differentiated.
    """
    up, right = Upstream(g, out, inv), Sums(b, rule, gs, gz)
    if rule.causal:
        dq, dk, dv = _within_and_before(up, b, rule)
    else:
        dq, dk, dv = _queries(up, b, rule, right), *(x.new_zeros(x.shape, dtype=b.dtype) for x in (b.k, b.v))
    _add_later(dk, dv, up, b, rule, right)
    return dq, dk.to(b.k.dtype), dv.to(b.v.dtype), *right.state(b.dtype)


def _within_and_before(up: Upstream, b: Batch, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Left to right: return dq, and the part of dk and dv inside each chunk."""
    dq = b.q.new_empty(b.q.shape)
    dk, dv = b.k.new_empty(b.k.shape, dtype=b.dtype), b.v.new_empty(b.v.shape, dtype=b.dtype)
    left, vjp = Sums(b, rule, b.s0, b.z0), rule.core.features_vjp
    for at in spans(b.q, rule):
        pad = padding(b, at)
        x, y, w = (load(part[:, at], pad, b.dtype) for part in (b.q, b.k, b.v))
        gn, h = up.of(b, rule, at, pad)
        phi_q, phi_k, dphi = rule.core.features(x), fill(rule.core.features(y), pad), left.read_transposed(gn, h)
        dots = dot_products(rule, x, y, phi_q, phi_k)
        W = torch.baddbmm(h[..., None], gn, w.mT).tril_()  # [N,C,C]
        if rule.closed:
            W = W * rule.core.kernel_grad(dots)
            dx, dy = W @ y + vjp(x, dphi), W.mT @ x
        else:
            dx, dy = vjp(x, torch.baddbmm(dphi, W, phi_k)), vjp(y, W.mT @ phi_q)
        dq[:, at], dk[:, at] = tokens(dx, b), tokens(fill(dy, pad), b)
        dv[:, at] = tokens(scores(rule, dots, pad).mT @ gn, b)
        left.add(phi_k, w)
    return dq, dk, dv


def _queries(up: Upstream, b: Batch, rule: Rule, right: Sums) -> Tensor:
    """Not causal: return dq from the sums over all keys, and add the queries to `right`, the sums for dk and dv."""
    dq = b.q.new_empty(b.q.shape)
    everything = Sums(b, rule, b.s0, b.z0)
    everything.add_keys(b, rule)
    for at in spans(b.q, rule):
        x, (gn, h) = load(b.q[:, at], None, b.dtype), up.of(b, rule, at, None)
        dq[:, at] = tokens(rule.core.features_vjp(x, everything.read_transposed(gn, h)), b)
        right.add(rule.core.features(x), gn, h)
    return dq


def _add_later(dk: Tensor, dv: Tensor, up: Upstream, b: Batch, rule: Rule, right: Sums) -> None:
    """Right to left: add the gradients of k and v through later queries and the final state."""
    for at in reversed(spans(b.k, rule)):
        pad = padding(b, at)
        y, w = load(b.k[:, at], pad, b.dtype), load(b.v[:, at], pad, b.dtype)
        dy = rule.core.features_vjp(y, right.read_transposed(w, None))
        dw = fill(rule.core.features(y), pad) @ right.s.to(b.dtype)
        dk[:, at] += tokens(fill(dy, pad), b)
        dv[:, at] += tokens(dw, b)
        if rule.causal:
            gn, h = up.of(b, rule, at, pad)
            right.add(rule.core.features(load(b.q[:, at], pad, b.dtype)), gn, h)
