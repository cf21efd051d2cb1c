// Backward from q, k, v, out and inv alone: a forward sweep in time with S gives dq, a reverse one with R dk and dv.
//
//   g_n = g inv,  h = -(g . out) inv,  W = tril(g_n v^T + h),  R = sum phi(q)^T g_n,  r = sum h phi(q)
//   dphi(q) = W phi(k) + g_n S^T + h z      dphi(k) = W^T phi(q) + v R^T + r      dv = A^T g_n + phi(k) R
//
// Quadratic kernels take the terms inside a chunk through kappa'(q.k) and the others through their features.
#pragma once
#include "query_grads.h"

namespace {

// Quadratic kernels: dx [D][16] = sum_j x_j W[j][:] with x [D][16] the other side's tokens (null: none).
INLINE void inner_grads(const Shape &s, Scratch &w, const float *xT) {
  for (int64_t blk = 0; blk < s.nbD; ++blk)
    grads(w.dx + blk * 256, w.zeros, 0, 0, w.zeros, w.zeros, w.ones, xT ? xT + blk * 256 : nullptr, w.W, w.ahead);
}

// The two sides of a sweep: the tokens whose gradient it computes, and those that the state sums up.
struct Sides {
  float *ownT;                                   // [D][16], read by quadratic kernels only; then room for the result
  const float *other, *otherT, *other_features;  // otherT null: no terms inside the chunk
  const float *values, *lanes;  // what the state pairs with the other side; what reads the state, [V][16]
  const float *weight;          // [16], of z in the gradient
};

// d phi of the own tokens from S, z and W, for quadratic kernels propagated to x: natural layout. Block by block, so that
// the state is updated (keep) with the other side's tokens while its rows are in the first-level cache.
Grads map_grads(const Shape &s, Scratch &w, const Stream &st, const Sides &x, bool keep) {
  const int64_t panels = st.live ? s.P : 0, step = s.Fp * 16;
  for (int64_t blk = 0; blk < s.nbF; ++blk) {
    const float *inner = s.quad || !x.otherT ? nullptr : x.otherT + blk * 256;
    grads(w.d + blk * 256, st.S + blk * 256, step, panels, x.lanes, st.z + blk * 16, x.weight, inner, w.W, w.ahead);
    if (keep)
      by_pairs(s.P, [&](int64_t p, int64_t n) {
        add_block(s, w, st, x.other, x.other_features, x.values, blk, p, n);
      });
  }
  if (s.quad) {
    inner_grads(s, w, x.otherT);
    features_vjp(w.dx, s.m, x.ownT, w.d);
  }
  transpose(x.ownT, s.quad ? w.dx : w.d, s.nbD);
  return {x.ownT, 16, 256};
}

// dq of 16 tokens of a quadratic kernel, from the state before them and (causal) from their own keys.
void dq_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, bool keep) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, true, c->causal, true);
  fill_valid(w.valid, c, sp, t, n, c->causal);
  load_g(s, w, sp, at);
  transpose(w.gT, w.gn, s.P);
  load_natural<IDENTITY>(w.qn, q_rows(c, sp, h, t), c->D, w.valid);
  transpose(w.qT, w.qn, s.nbD);
  if (c->causal) {
    load_k(s, w, k_rows(c, sp, h, t), true);
    load_natural<IDENTITY>(w.vp, v_rows(c, sp, h, t), c->V, w.valid);
    scores<16, 1>(w.W, w.vp, w.gT, s.P);  // rows keys, columns queries
    scores<16, 1>(w.raw, w.kn, w.qT, s.nbD);
    causal_scores<QUERY_AFTER_KEY>(
        w.W, [&](vf x, int i, int col) { return (x + load(w.h + col)) * s.m.slope(load(w.raw + i * C + col)); });
  }
  const Sides sides = {w.qT, w.kn, c->causal ? w.kT : nullptr, w.fk, w.vp, w.gT, w.h};
  const Grads result = map_grads(s, w, st, sides, keep);
  store_grad<IDENTITY>(c->dq + ((sp.b * c->Tq + t) * c->H + h) * c->D, c->H * c->D, n, c->D, result, w.qn, w.valid,
                       s.stream_d);
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

void dq_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1) {
  if (!s.quad) return query_grad_task(s, w, streams, seq, h0, h1);
  const Attention *c = s.c;
  const Span sp = span_of(c, seq);
  const Part all = {0, c->V, s.P};
  start_streams(s, w, streams, c->s0, c->z0, seq, h0, h1, all);
  if (!c->causal)
    sweep<false>(sp.k0, sp.k1, h0, h1, c->D + c->V,
                 [&](const Place &at) { accumulate_chunk(s, w, streams[at.h - h0], sp, at, all); });
  sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + 3 * c->V,
               [&](const Place &at) { dq_chunk(s, w, streams[at.h - h0], sp, at, c->causal && at.t + C < sp.q1); });
  if (s.stream_d) stream_fence();
}

// dk and dv of 16 tokens, from R after them and (causal) from their own queries.
void dkv_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, bool keep) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, c->causal, true, c->causal);
  fill_valid(w.valid, c, sp, t, n, true);
  load_k(s, w, k_rows(c, sp, h, t), false);
  load_natural<IDENTITY>(w.vp, v_rows(c, sp, h, t), c->V, w.valid);
  transpose(w.vT, w.vp, s.P);
  if (c->causal) {
    load_q(s, w, q_rows(c, sp, h, t), true);
    load_g(s, w, sp, at);
    scores<16, 1>(w.A, w.kn, w.qT, s.nbD);  // rows keys, columns queries
    scores<16, 1>(w.W, w.gn, w.vT, s.P);    // rows queries, columns keys
    if (s.quad) {
      transpose16(w.raw, w.A, C);
      causal_scores<KEY_BEFORE_QUERY>(
          w.W, [&](vf x, int i, int col) { return (x + w.h[i]) * s.m.slope(load(w.raw + i * C + col)); });
      causal_scores<QUERY_AFTER_KEY>(w.A, [&](vf x, int i, int) { return s.m.kernel(x) * w.valid[i]; });
    } else {
      causal_scores<KEY_BEFORE_QUERY>(w.W, [&](vf x, int i, int) { return x + w.h[i]; });
      causal_scores<QUERY_AFTER_KEY>(w.A, [](vf x, int, int) { return x; });
    }
  }
  const RowsOut dv = {c->dv + ((sp.b * c->Tk + t) * c->H + h) * c->V, c->H * c->V, n, c->V, s.stream_v};
  by_pairs(s.P, [&](int64_t p, int64_t panels) {
    read_panels(s, w, st, dv, p, panels, c->causal ? -1 : 0, w.kn, w.fk, w.gn, nullptr);
  });
  const Sides sides = {w.kT, w.qn, c->causal ? w.qT : nullptr, w.fq, w.gn, w.vT, w.ones};
  const Grads result = map_grads(s, w, st, sides, keep);
  store_grad_by_kind[c->kind](c->dk + ((sp.b * c->Tk + t) * c->H + h) * c->D, c->H * c->D, n, c->D, result, w.kn,
                              w.valid, s.stream_d);
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.qn, w.h, true);
}

void dkv_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1) {
  const Attention *c = s.c;
  const Span sp = span_of(c, seq);
  const Part all = {0, c->V, s.P};
  start_streams(s, w, streams, c->gs, c->gz, seq, h0, h1, all);
  if (!c->causal)
    sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) {
      fill_valid(w.valid, c, sp, at.t, at.n, false);
      load_q(s, w, q_rows(c, sp, at.h, at.t), false);
      load_g(s, w, sp, at);
      add_outer(s, w, streams[at.h - h0], w.qn, w.fq, w.gn, s.P);  // R += phi(q)^T gn,  r += sum h phi(q)
      add_sums(s, w, streams[at.h - h0], w.qn, w.h, true);
    });
  sweep<true>(sp.k0, sp.k1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) {
    dkv_chunk(s, w, streams[at.h - h0], sp, at, c->causal && (at.t > sp.k0 || c->ds0));
  });
  finish_streams(s, streams, c->ds0, c->dz0, seq, h0, h1, all);
  if (s.stream_v || s.stream_d) stream_fence();
}

}  // namespace
