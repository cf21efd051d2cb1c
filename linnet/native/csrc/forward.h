// Forward:  o_t = factor_t ( sum_{j<=t} kappa(q_t, k_j) v_j + phi(q_t) S ),  then  S += phi(k)^T v,  z += sum phi(k).
#pragma once
#include "chunk.h"

namespace {

// Values that are not finite must not reach earlier tokens, for which A holds zeros: 0 NaN = NaN. So the product uses
// zeros in their place (in vT, which the forward does not need), and their contribution is added after it.
NOINLINE void without_non_finite(Scratch &w, int64_t panels) {
  for (int64_t i = 0; i < panels * 256; ++i) w.vT[i] = w.vp[i] * 0.0f == 0.0f ? w.vp[i] : 0.0f;
}

NOINLINE void add_non_finite(Scratch &w, const RowsOut &o, int64_t p) {
  const int64_t width = o.width - p * 16 < 16 ? o.width - p * 16 : 16;
  for (int j = 0; j < o.rows; ++j)
    for (int64_t column = 0; column < width; ++column) {
      const float x = w.vp[p * 256 + j * 16 + column];
      if (x * 0.0f == 0.0f) continue;
      for (int i = j; i < o.rows; ++i)
        if (w.valid[i] != 0.0f) o.p[i * o.stride + p * 16 + column] += w.inv[i] * w.A[i * C + j] * x;
    }
}

// Panels by panels: the outputs, then (keep) the update with the same tokens' keys while the panels are in the
// first-level cache.
void write_output(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part, int causal,
                  bool keep, bool finite = true) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  if (!finite) without_non_finite(w, part.panels);
  factors(s, w, causal ? w.A : nullptr, st, w.inv);
  if (c->inv && part.v0 == 0)
    for (int i = 0; i < n; ++i) c->inv[(sp.b * c->Tq + t + i) * c->H + h] = w.inv[i];
  const linnet_strides &to = c->o_strides;
  const RowsOut o = {c->out + sp.b * to.b + t * to.t + h * to.h + part.v0, to.t, n, part.V, s.stream_v};
  by_pairs(part.panels, [&](int64_t p, int64_t panels) {
    read_panels(s, w, st, o, p, panels, causal, w.qn, w.fq, finite ? w.vp : w.vT, w.inv);
    for (int64_t i = p; !finite && i < p + panels; ++i) add_non_finite(w, o, i);
    for (int64_t blk = 0; keep && blk < s.nbF; ++blk) add_block(s, w, st, w.kn, w.fk, w.vp, blk, p, panels);
  });
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

void causal_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part,
                  bool keep) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, part, true, true, false);
  fill_valid(w.valid, c, sp, t, n, true);
  load_q(s, w, q_rows(c, sp, h, t), false);
  load_k(s, w, k_rows(c, sp, h, t), true);
  const bool finite = load_values(w.vp, v_rows(c, sp, h, t, part.v0), part.V, w.valid);
  scores<16, 1>(w.A, w.qn, w.kT, s.nbD);
  if (s.quad)
    causal_scores<KEY_BEFORE_QUERY>(w.A, [&](vf x, int, int col) { return s.m.kernel(x) * load(w.valid + col); });
  else
    causal_scores<KEY_BEFORE_QUERY>(w.A, [](vf x, int, int) { return x; });
  write_output(s, w, st, sp, at, part, 1, keep, finite);
}

void forward_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1, const Part &part) {
  const Attention *c = s.c;
  const Span sp = span_of(c, seq);
  start_streams(s, w, streams, c->s0, c->z0, seq, h0, h1, part);
  if (c->causal) {
    sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + part.V, [&](const Place &at) {
      causal_chunk(s, w, streams[at.h - h0], sp, at, part, c->s_out || at.t + C < sp.q1);
    });
  } else {
    sweep<false>(sp.k0, sp.k1, h0, h1, c->D + c->V,
                 [&](const Place &at) { accumulate_chunk(s, w, streams[at.h - h0], sp, at, part); });
    sweep<false>(sp.q0, sp.q1, h0, h1, c->D, [&](const Place &at) {
      fill_valid(w.valid, c, sp, at.t, at.n, false);
      load_q(s, w, q_rows(c, sp, at.h, at.t), false);
      write_output(s, w, streams[at.h - h0], sp, at, part, 0, false);
    });
  }
  finish_streams(s, streams, c->s_out, c->z_out, seq, h0, h1, part);
  if (s.stream_v) stream_fence();
}

}  // namespace
