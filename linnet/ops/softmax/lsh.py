"""LSH attention: softmax over the tokens in the hash bucket of the query, with shared queries and keys.

    k_t = q_t / |q_t|,   bucket_r(t) = argmax [M_r k_t, -M_r k_t],   r = 1 ... R rounds, M_r drawn at random
    N_t = union over r of the last `span` tokens before t in its bucket of round r   (not causal: `span` on both sides)
    o_t = sum_{j in N_t} a_tj v_j,   a_tj = exp(scale q_t.k_j) / sum_{i in N_t} exp(scale q_t.k_i);   o_t = v_t if none

Kitaev et al. 2020, "Reformer", arXiv:2001.04451, with neighbors that later tokens cannot change: decision 0017.
B batch, T new tokens out of S with the past, H heads, D query width, V value width, R rounds, C tokens in a block:
q [B,T,H,D]   v, out [B,T,H,V]   rotations M [R,H,buckets/2,D]   bucket [B,R,H,S]   mask [B,T]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...errors import whole
from ...feature_maps.common import product, wide_dtype
from ..causal import guarded, refuse_unguarded
from ..checks import check_cu_seqlens, check_mask, check_others, check_qkv, check_scale, check_step, widened
from ..dispatch import check_torch, choose
from ..precision import full_precision
from ..state import KVState, check_cache, real_tokens
from .full import append, packed
from .full import sdpa_bthd as sdpa

MIN_BLOCK = 16  # below this many tokens a block costs more to call than to compute
FEW = 128  # queries for which sorting never pays off
TINY = 1e-12  # added to |q|^2
FAR = -(2**30)  # the place of a missing token


class Rule(NamedTuple):
    span: int
    causal: bool
    scale: float


class Tokens(NamedTuple):
    """The queries are those of the newest T of S tokens."""

    q: Tensor  # [B,T,H,D]
    k: Tensor  # [B,S,H,D]
    v: Tensor  # [B,S,H,V]
    bucket: Tensor  # [B,R,H,S]; padding has a separate one


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
    backend: str = "auto",
) -> tuple[Tensor, KVState | None]:
    """Attend with softmax weights to tokens that hash into the same bucket as the query.

    Args:
        q, v: [B,T,H,D], [B,T,H,V], one floating dtype; the keys are the queries, scaled to length 1.
        rotations: [R,H,buckets/2,D], the random directions of each round.
        span: how many tokens of its bucket a query sees in each round (when not causal: on both sides).
        causal: token t sees tokens before t; False: tokens on both sides.
        scale: factor on q.k; None means 1 / sqrt(D).
        initial_state: KVState, the cache of earlier keys and values, from an earlier call; never modified.
        output_final_state: also return the cache of all keys and values so far.
        mask: [B,T] bool, True = real token. Padding takes no place in a bucket, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "parallel" (T x S weights), "chunked" (sorted by bucket, in blocks of about `span`), "recurrent" (token
            by token), or "auto", the one with the least to compute.
        backend: "auto" or "torch"; there is no native kernel.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state, in the dtype of q and v, or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    When causal, no output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    check_qkv(q, q, v)
    _check_rotations(rotations, q)
    whole("span", span, 1, hint="it counts tokens")
    rule = Rule(span, causal, check_scale(scale, q.shape[-1]))
    check_mask(mask, q.shape[0], q.shape[1], q.device)
    if causal:
        refuse_unguarded("lsh_attention", (q, v), mask)
    if cu_seqlens is not None:
        offsets = check_cu_seqlens(cu_seqlens, q.shape[1], q.shape[0])

        def attend(q: Tensor, _: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, KVState | None]:
            how |= {"output_final_state": output_final_state, "form": form, "backend": backend}
            return lsh_attention(q, v, rotations, span=span, causal=causal, scale=scale, **how)

        return packed(attend, q, q, v, mask, offsets, initial_state, KVState)
    if mask is not None:  # padding, NaN included, is never read
        q, v = (x.masked_fill(~mask[:, :, None, None], 0) for x in (q, v))
    with full_precision(q):
        x, cache = _tokens(q, v, rotations, initial_state, mask)
        auto = auto_form(q.shape[1], rotations.shape[0], span)
        chosen = choose("lsh_attention", form, backend, q.shape[1], auto=auto).form
        run = FORMS[chosen if q.shape[1] else auto]
        if causal:
            (out,) = guarded(lambda k, v: (run(x._replace(k=k, v=v), rule),), x[1:3], columns=1, whole=(0,))
        else:
            out = run(x, rule)
    if mask is not None:
        out = out.masked_fill(~mask[:, :, None, None], 0)
    return out, cache if output_final_state else None


def lsh_attention_step(
    q: Tensor, v: Tensor, rotations: Tensor, state: KVState | None = None, *, span: int, scale: float | None = None,
    backend: str = "auto",
) -> tuple[Tensor, KVState]:  # fmt: skip
    """Process one token: q [B,H,D], v [B,H,V] -> out [B,H,V] and the cache one token longer."""
    check_step(q, q, v)
    _check_rotations(rotations, q)
    whole("span", span, 1, hint="it counts tokens")
    rule = Rule(span, True, check_scale(scale, q.shape[-1]))
    with full_precision(q):
        x, cache = _tokens(q[:, None], v[:, None], rotations, state, None)
        check_torch("lsh_attention", backend)
        return _recurrent(x, rule)[:, 0], cache


def auto_form(length: int, rounds: int, span: int) -> str:
    """Return the fastest form: a key meets `length` queries, or 2 C of them in each round, after a sort."""
    if length <= 1:
        return "recurrent"
    return "parallel" if length <= FEW + 2 * rounds * max(span, MIN_BLOCK) else "chunked"


def hash_buckets(k: Tensor, rotations: Tensor) -> Tensor:  # [B,S,H,D] -> [B,R,H,S]
    """Return the nearest of the directions M and -M, computed in float32 or wider."""
    with torch.no_grad():
        along = product("bshd,rhnd->brhsn", k, rotations)
        return torch.cat([along, -along], dim=-1).argmax(-1)


def _tokens(
    q: Tensor, v: Tensor, rotations: Tensor, state: KVState | None, mask: Tensor | None
) -> tuple[Tokens, KVState]:
    """Return past and new tokens with their buckets, and the cache of both, which shares no memory with v."""
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


def _parallel(x: Tokens, rule: Rule) -> Tensor:
    """O(T S): all pairs, those without a common bucket masked out."""
    past = x.k.shape[1] - x.q.shape[1]
    _, place = _sorted(x, rule)
    own = torch.arange(x.k.shape[1], device=x.k.device)
    seen = torch.zeros((), dtype=torch.bool, device=x.k.device)
    for one in place.unbind(1):  # [B,H,S]
        seen = seen | _near(one[..., past:, None] - one[..., None, :], rule)  # [B,H,T,S]
    seen = seen | (~seen.any(-1, keepdim=True) & (own[past:, None] == own))
    return sdpa(x.q, x.k, x.v, scale=rule.scale, attn_mask=seen)


def _chunked(x: Tokens, rule: Rule) -> Tensor:
    """O(S R C): sorted by the buckets of a round, neighbors are within `span` places: in one block or the next."""
    past = x.k.shape[1] - x.q.shape[1]
    order, place = _sorted(x, rule)
    q = torch.cat([x.k[:, :past], x.q], dim=1)  # outputs of past tokens are cut off below
    q, k, v = (y.transpose(1, 2).to(wide_dtype(y)) for y in (q, x.k, x.v))  # [B,H,S,.]
    results = [_round(q, k, v, order[:, r], place[:, : r + 1], rule) for r in range(order.shape[1])]
    tops, sums = zip(*results, strict=True)  # [B,H,S,1], [B,H,S,V+1]
    top = torch.stack(tops).amax(0)
    total = sum((s * (t - top).exp() for t, s in results), start=torch.zeros_like(sums[0]))
    num, den = total[..., :-1], total[..., -1:]
    alone = den == 0  # the largest score counts as 1, so 0 means none; not `den > 0`, which is False for NaN
    out = torch.where(alone, v, num / torch.where(alone, 1.0, den))
    return out[:, :, past:].transpose(1, 2).to(x.v.dtype)


def _round(q: Tensor, k: Tensor, v: Tensor, order: Tensor, place: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the largest score [B,H,S,1] and sums of exp(score - largest) (v, 1) [B,H,S,V+1] of the last round.

    A neighbor seen in an earlier round counts there only. Reformer divides the weight of a pair by the number of rounds
    that see it, which gives the same sum over all rounds.
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
    """One query after the other, counting the tokens of its bucket; independent of the sorted code."""
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
    """Return the tokens by bucket and time, and the place of each: 1 apart in a bucket, over `span` across buckets."""
    order = x.bucket.argsort(dim=-1, stable=True)
    return order, (order.argsort(-1) + rule.span * x.bucket).int()


def _near(gap: Tensor, rule: Rule) -> Tensor:
    """Return whether a key `gap` places before the query (after it if negative) is a neighbor."""
    return (gap > 0) & (gap <= rule.span) if rule.causal else (gap != 0) & (gap.abs() <= rule.span)


def _near_in_blocks(place: Tensor, order: Tensor, rule: Rule) -> Tensor:  # [B,H,S] -> [B,H,N,C,M]
    """Return the neighbors by the places of one round, in the order of another."""
    own = _blocks(place[..., None], order, rule, FAR)
    return _near(own - _around(own, rule, FAR).transpose(-1, -2), rule)


def _blocks(y: Tensor, order: Tensor, rule: Rule, fill: int = 0) -> Tensor:  # [B,H,S,.] -> [B,H,N,C,.]
    size = max(rule.span, MIN_BLOCK)
    return pad(_take(y, order), (0, 0, 0, -y.shape[2] % size), value=fill).unflatten(2, (-1, size))


def _around(y: Tensor, rule: Rule, fill: int = 0) -> Tensor:  # [B,H,N,C,.] -> [B,H,N,M,.]
    """Join each block with the one before it and, when not causal, the one after: M = 2 C or 3 C."""
    parts = [pad(y, (0, 0, 0, 0, 1, -1), value=fill), y]
    if not rule.causal:
        parts.append(pad(y, (0, 0, 0, 0, -1, 1), value=fill))
    return torch.cat(parts, dim=3)


def _take(y: Tensor, index: Tensor) -> Tensor:  # [B,H,S,.], [B,H,N] -> [B,H,N,.]
    return y.gather(2, index[..., None].expand(-1, -1, -1, y.shape[-1]))


def _check_rotations(rotations: Tensor, q: Tensor) -> None:
    check_others("q", q, rotations=rotations)
    got, (heads, width) = list(rotations.shape), q.shape[-2:]
    if len(got) != 4 or got[1] != heads or got[3] != width or 0 in got:
        raise ValueError(f"rotations has shape {got}; accepted: [rounds, {heads} heads, buckets / 2, width {width}]")


FORMS: dict[str, Callable[[Tokens, Rule], Tensor]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}
