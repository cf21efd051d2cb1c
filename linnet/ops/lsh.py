"""LSH attention: softmax over the tokens that fall into the query's bucket, with queries and keys shared.

    k_t = q_t / |q_t|,   bucket_r(t) = argmax [M_r k_t, -M_r k_t],   r = 1 ... R rounds, M_r drawn at random
    N_t = union over r of the last `span` tokens before t in its bucket of round r   (not causal: `span` on both sides)
    o_t = sum_{j in N_t} a_tj v_j,   a_tj = exp(scale q_t.k_j) / sum_{i in N_t} exp(scale q_t.k_i);   o_t = v_t if none

Kitaev et al. 2020, "Reformer", arXiv:2001.04451, with neighbours that later tokens cannot change: decision 0017.
B batch, T new tokens out of S with the past, H heads, D query width, V value width, R rounds, C tokens in a block:
q [B,T,H,D]   v, out [B,T,H,V]   rotations M [R,H,buckets/2,D]   bucket [B,R,H,S]   mask [B,T]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..feature_maps.common import product, wide_dtype
from .causal import guarded
from .checks import check_cu_seqlens, check_mask, check_qkv, check_scale, check_step, widened
from .dispatch import check_names
from .fused import full_precision
from .softmax import append, packed
from .softmax import sdpa_bthd as sdpa
from .state import KVState, check_cache, real_tokens

MIN_BLOCK = 16  # below this many tokens a block costs more to call than to compute
FEW = 128  # queries for which sorting never pays
TINY = 1e-12  # added to |q|^2
FAR = -(2**30)  # the place of what is no token


class Rule(NamedTuple):
    span: int
    causal: bool
    scale: float


class Tokens(NamedTuple):
    """The queries are those of the newest T of S tokens."""

    q: Tensor  # [B,T,H,D]
    k: Tensor  # [B,S,H,D]
    v: Tensor  # [B,S,H,V]
    bucket: Tensor  # [B,R,H,S]; padding has one of its own


def lsh_attention(
    q: Tensor,
    v: Tensor,
    rotations: Tensor,
    *,
    span: int,
    causal: bool = True,
    scale: float | None = None,
    initial_state: KVState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
) -> tuple[Tensor, KVState | None]:
    """out [B,T,H,V], and the cache of every key and value so far when asked for.

    `mask` [B,T] bool, True = real token, padding anywhere: it answers 0 and takes no place in a bucket.
    `cu_seqlens` [S+1]: S sequences packed along time in a batch of one; the state then has S rows.
    `form`: "parallel" writes out T x S weights, "chunked" sorts by bucket and keeps to blocks of about `span`,
    "recurrent" takes one token after the other; "auto" is the one with the least to compute.
    When causal: no output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    check_qkv(q, q, v)
    _check_hash(rotations, q, span)
    check_mask(mask, q.shape[0], q.shape[1], q.device)
    check_names(form, "torch")
    rule = Rule(span, causal, check_scale(scale, q.shape[-1]))
    if cu_seqlens is not None:
        offsets = check_cu_seqlens(cu_seqlens, q.shape[1], q.shape[0])

        def attend(q: Tensor, _: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, KVState | None]:
            how |= {"output_final_state": output_final_state, "form": form}
            return lsh_attention(q, v, rotations, span=span, causal=causal, scale=scale, **how)

        return packed(attend, q, q, v, mask, offsets, initial_state, KVState)
    if mask is not None:  # whatever stands in the padding, NaN included, is never read
        q, v = (x.masked_fill(~mask[:, :, None, None], 0) for x in (q, v))
    with full_precision(q):
        x, cache = _tokens(q, v, rotations, initial_state, mask)
        attend_by = FORMS[_choose(x, rule) if form == "auto" or not q.shape[1] else form]
        if causal:
            (out,) = guarded(lambda k, v: (attend_by(x._replace(k=k, v=v), rule),), x[1:3], columns=1, whole=(0,))
        else:
            out = attend_by(x, rule)
    if mask is not None:
        out = out.masked_fill(~mask[:, :, None, None], 0)
    return out, cache if output_final_state else None


def lsh_attention_step(
    q: Tensor, v: Tensor, rotations: Tensor, state: KVState | None = None, *, span: int, scale: float | None = None
) -> tuple[Tensor, KVState]:
    """One token: q [B,H,D], v [B,H,V] -> out [B,H,V] and the cache one token longer."""
    check_step(q, q, v)
    _check_hash(rotations, q, span)
    with full_precision(q):
        x, cache = _tokens(q[:, None], v[:, None], rotations, state, None)
        return _recurrent(x, Rule(span, True, check_scale(scale, q.shape[-1])))[:, 0], cache


def hash_buckets(k: Tensor, rotations: Tensor) -> Tensor:  # [B,S,H,D] -> [B,R,H,S]
    """The nearest of the directions M and -M, in float32 or wider."""
    with torch.no_grad():
        along = product("bshd,rhnd->brhsn", k, rotations)
        return torch.cat([along, -along], dim=-1).argmax(-1)


def _tokens(
    q: Tensor, v: Tensor, rotations: Tensor, state: KVState | None, mask: Tensor | None
) -> tuple[Tokens, KVState]:
    """Past and new tokens with their buckets, and the cache of both, which never holds the caller's own v."""
    wide = q.to(wide_dtype(q))
    k = (wide * (wide.square().sum(-1, keepdim=True) + TINY).rsqrt()).to(q.dtype)
    cache = KVState(k, v.clone(), mask)
    if state is not None:
        state = widened(state, KVState, k.dtype)
        check_cache(state, KVState, k, v)
        cache = append(state, cache)
    bucket = hash_buckets(cache.k, rotations)
    if cache.mask is not None:
        bucket = bucket.masked_fill(~real_tokens(cache)[:, None, None], 2 * rotations.shape[2])
    return Tokens(q, cache.k, cache.v, bucket), cache


def _choose(x: Tokens, rule: Rule) -> str:
    """Each key meets T queries, or 2 C of them in each round, after a sort; about where the two take the same time."""
    length, rounds = x.q.shape[1], x.bucket.shape[1]
    if length <= 1:
        return "recurrent"
    return "parallel" if length <= FEW + 2 * rounds * max(rule.span, MIN_BLOCK) else "chunked"


def _parallel(x: Tokens, rule: Rule) -> Tensor:
    """All T x S pairs, those that share no bucket masked out."""
    past = x.k.shape[1] - x.q.shape[1]
    _, place = _sorted(x, rule)
    own = torch.arange(x.k.shape[1], device=x.k.device)
    seen = torch.zeros((), dtype=torch.bool, device=x.k.device)
    for one in place.unbind(1):  # [B,H,S]
        seen = seen | _near(one[..., past:, None] - one[..., None, :], rule)  # [B,H,T,S]
    seen = seen | (~seen.any(-1, keepdim=True) & (own[past:, None] == own))
    return sdpa(x.q, x.k, x.v, scale=rule.scale, attn_mask=seen)


def _chunked(x: Tokens, rule: Rule) -> Tensor:
    """O(S R C): in the order of each round neighbours stand within `span` places, so in one block or the next."""
    past = x.k.shape[1] - x.q.shape[1]
    order, place = _sorted(x, rule)
    q = torch.cat([x.k[:, :past], x.q], dim=1)  # what past tokens would answer is cut off below
    q, k, v = (y.transpose(1, 2).to(wide_dtype(y)) for y in (q, x.k, x.v))  # [B,H,S,.]
    found = [_round(q, k, v, order[:, r], place[:, : r + 1], rule) for r in range(order.shape[1])]
    tops, sums = zip(*found, strict=True)  # [B,H,S,1], [B,H,S,V+1]
    top = torch.stack(tops).amax(0)
    total = sum((s * (t - top).exp() for t, s in found), start=torch.zeros_like(sums[0]))
    num, den = total[..., :-1], total[..., -1:]
    alone = den == 0  # the largest score counts 1, so 0 is none; not `den > 0`, which would take NaN for none
    out = torch.where(alone, v, num / torch.where(alone, 1.0, den))
    return out[:, :, past:].transpose(1, 2).to(x.v.dtype)


def _round(q: Tensor, k: Tensor, v: Tensor, order: Tensor, place: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Largest score [B,H,S,1] and sums of exp(score - largest) (v, 1) [B,H,S,V+1] of the last round of `place`.

    A neighbour that an earlier round has found counts there: Reformer's correction, which divides what a pair counts by
    the number of rounds that find it, gives the same sum over all rounds.
    """
    seen = _near_in_blocks(place[:, -1], order, rule)  # [B,H,N,C,M]
    for earlier in place[:, :-1].unbind(1):
        seen = seen & ~_near_in_blocks(earlier, order, rule)
    ones = v.new_ones(*v.shape[:-1], 1)
    q, k, v = (_blocks(y, order, rule) for y in (q, k, torch.cat([v, ones], dim=-1)))
    scores = q @ _around(k, rule).transpose(-1, -2) * rule.scale
    scores = scores.masked_fill(~seen, -torch.inf)
    top = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).min)
    sums = (scores - top).exp() @ _around(v, rule)  # [B,H,N,C,V+1]
    rank = order.argsort(-1)
    return _take(top.flatten(2, 3), rank), _take(sums.flatten(2, 3), rank)


def _recurrent(x: Tokens, rule: Rule) -> Tensor:
    """One query after the other, counting the tokens of its bucket; written apart, so that agreement says something."""
    outs, past = [], x.k.shape[1] - x.q.shape[1]
    for t in range(x.q.shape[1]):
        stop = past + t + 1 if rule.causal else x.k.shape[1]
        same = x.bucket[..., :stop] == x.bucket[..., past + t, None]  # [B,R,H,S]
        count = same.cumsum(-1)
        seen = (same & _near(count[..., past + t, None] - count, rule)).any(1)  # [B,H,S]
        own = torch.arange(stop, device=seen.device) == past + t
        seen = seen | (~seen.any(-1, keepdim=True) & own)
        q, k, v = x.q[:, t : t + 1], x.k[:, :stop], x.v[:, :stop]
        outs.append(sdpa(q, k, v, scale=rule.scale, attn_mask=seen[:, :, None]))
    return torch.cat(outs, dim=1) if outs else x.v[:, :0]


def _sorted(x: Tokens, rule: Rule) -> tuple[Tensor, Tensor]:  # [B,R,H,S] each
    """The tokens by bucket and time, and the place of each: neighbours in a bucket are 1 apart, buckets over `span`."""
    order = x.bucket.argsort(dim=-1, stable=True)
    return order, (order.argsort(-1) + rule.span * x.bucket).int()


def _near(gap: Tensor, rule: Rule) -> Tensor:
    """Whether a key so many places before the query, behind it if negative, is a neighbour."""
    return (gap > 0) & (gap <= rule.span) if rule.causal else (gap != 0) & (gap.abs() <= rule.span)


def _near_in_blocks(place: Tensor, order: Tensor, rule: Rule) -> Tensor:  # [B,H,S] -> [B,H,N,C,M]
    """Neighbours by the places of one round, in the order of another."""
    own = _blocks(place[..., None], order, rule, FAR)
    return _near(own - _around(own, rule, FAR).transpose(-1, -2), rule)


def _blocks(y: Tensor, order: Tensor, rule: Rule, fill: int = 0) -> Tensor:  # [B,H,S,.] -> [B,H,N,C,.]
    size = max(rule.span, MIN_BLOCK)
    return pad(_take(y, order), (0, 0, 0, -y.shape[2] % size), value=fill).unflatten(2, (-1, size))


def _around(y: Tensor, rule: Rule, fill: int = 0) -> Tensor:  # [B,H,N,C,.] -> [B,H,N,M,.]
    """Each block with the one before it and, when not causal, the one after: M = 2 C or 3 C."""
    parts = [pad(y, (0, 0, 0, 0, 1, -1), value=fill), y]
    if not rule.causal:
        parts.append(pad(y, (0, 0, 0, 0, -1, 1), value=fill))
    return torch.cat(parts, dim=3)


def _take(y: Tensor, index: Tensor) -> Tensor:  # [B,H,S,.], [B,H,N] -> [B,H,N,.]
    return y.gather(2, index[..., None].expand(-1, -1, -1, y.shape[-1]))


def _check_hash(rotations: Tensor, q: Tensor, span: int) -> None:
    if isinstance(span, bool) or not isinstance(span, int) or span < 1:
        raise ValueError(f"span is {span!r}; accepted: a whole number of tokens, 1 or more")
    got, (heads, width) = list(rotations.shape), q.shape[-2:]
    if len(got) != 4 or got[1] != heads or got[3] != width or 0 in got:
        raise ValueError(f"rotations have shape {got}; accepted: [rounds, {heads} heads, buckets / 2, width {width}]")
    if rotations.device != q.device:
        raise ValueError(f"rotations are on {rotations.device}, q on {q.device}; use rotations.to({str(q.device)!r})")


FORMS: dict[str, Callable[[Tokens, Rule], Tensor]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}
