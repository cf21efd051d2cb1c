// dq of maps with D features, in a forward sweep. The same sums as the output, with other names:
//
//   dphi(q)_t = sum_{j<=t} W_tj phi(k_j) + g_t T + h_t z,     T += v^T phi(k),     W = tril(g v^T + h)
//
// so g reads a state T = S^T whose panels are of features, [D/16][V][16], by the tiles of the forward. Nothing but v is
// transposed. g is the output gradient times inv, h the gradient of the denominator, as in backward.h.
#pragma once
#include "chunk.h"

namespace {

// T of one stream from S0 [F][V].
void import_transposed(const Shape &s, Stream &st, const float *S0, const float *z0) {
  import_state(s, st, nullptr, z0, 0, 0);
  if (!S0) return;
  memset(st.S, 0, st.nS * sizeof(float));
  st.live = true;
  for (int64_t f = 0; f < s.c->F; ++f)
    for (int64_t v = 0; v < s.c->V; ++v) st.S[(f / 16 * 16 * s.P + v) * 16 + f % 16] = S0[f * s.c->V + v];
}

// T += v^T phi(k): the features of `panels` panels from p on.
INLINE void add_values(const Shape &s, Scratch &w, Stream &st, int64_t p, int64_t panels) {
  const int64_t step = s.P * 256;
  float *T = st.S + p * step;
  for (int64_t blk = 0; blk < s.P; ++blk, T += 256) {
    const State x = {T, nullptr, step, !st.live};
    const float *a = w.vp + blk * 256, *features = w.kn + p * 256;
    panels == PAIR ? update_pair<1, 16>(x, a, features, w.ahead) : update_one<1, 16>(x, a, features, w.ahead);
  }
}

void add_key_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at) {
  const Attention *c = s.c;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, false, true, false);
  fill_valid(w.valid, c, sp, at.t, at.n, true);
  load_k(s, w, k_rows(c, sp, at.h, at.t), false);
  load_natural<IDENTITY>(w.vp, v_rows(c, sp, at.h, at.t), c->V, w.valid);
  by_pairs(s.nbD, [&](int64_t p, int64_t panels) { add_values(s, w, st, p, panels); });
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

// dq of 16 tokens, from the state before them and (causal) from their own keys.
void query_grad_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, bool keep) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, true, c->causal, true);
  fill_valid(w.valid, c, sp, t, n, c->causal);
  load_g(s, w, sp, at);
  load_q(s, w, q_rows(c, sp, h, t), false);
  if (c->causal) {
    load_k(s, w, k_rows(c, sp, h, t), false);
    load_natural<IDENTITY>(w.vp, v_rows(c, sp, h, t), c->V, w.valid);
    transpose(w.vT, w.vp, s.P);
    scores<16, 1>(w.W, w.gn, w.vT, s.P);  // rows queries, columns keys
    causal_scores<KEY_BEFORE_QUERY>(w.W, [&](vf x, int i, int) { return x + w.h[i]; });
  }
  by_pairs(s.nbD, [&](int64_t p, int64_t panels) {
    const RowsOut to = {w.d + p * 16, s.Dp, C, panels * 16, false};
    const int64_t step = s.P * 256, nb = st.live ? s.P : 0;
    const Reading r = {to,  c->causal ? 1 : 0, w.W, w.kn + p * 256, st.S + p * step, 256, step, nullptr,
                       w.h, st.z + p * 16};
    panels == PAIR ? read_pair<16, 1>(r, w.gn, nb, w.ahead) : read_one<16, 1>(r, w.gn, nb, w.ahead);
    if (keep) add_values(s, w, st, p, panels);
  });
  store_grad_by_kind[c->kind](c->dq + ((sp.b * c->Tq + t) * c->H + h) * c->D, c->H * c->D, n, c->D, {w.d, s.Dp, 16},
                              w.qn, w.valid, s.stream_d);
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

void query_grad_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1) {
  const Attention *c = s.c;
  const Span sp = span_of(c, seq);
  start_streams(s, w, streams, nullptr, nullptr, seq, h0, h1, {0, c->V, s.P});
  for (int64_t h = h0; h < h1; ++h) {
    const int64_t at = seq * c->H + h;
    if (c->s0 || c->z0)
      import_transposed(s, streams[h - h0], c->s0 ? c->s0 + at * c->F * c->V : nullptr,
                        c->z0 ? c->z0 + at * c->F : nullptr);
  }
  if (!c->causal)
    sweep<false>(sp.k0, sp.k1, h0, h1, c->D + c->V,
                 [&](const Place &at) { add_key_chunk(s, w, streams[at.h - h0], sp, at); });
  sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) {
    query_grad_chunk(s, w, streams[at.h - h0], sp, at, c->causal && at.t + C < sp.q1);
  });
  if (s.stream_d) stream_fence();
}

}  // namespace
