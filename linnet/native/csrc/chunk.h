// What forward and backward share of the work on one chunk of 16 tokens.
#pragma once
#include "stream.h"

namespace {

enum Side { KEY_BEFORE_QUERY, QUERY_AFTER_KEY };  // rows are queries, columns keys; or the other way round

// Keep the causal half of 16 x 16 scores, after apply(x, row, column group).
template <int SIDE, class F>
INLINE void causal_scores(float *A, F apply) {
  vi lane;
  for (int n = 0; n < VL; ++n) lane[n] = n;
  for (int i = 0; i < C; ++i)
    for (int n = 0; n < NT; ++n) {
      const vi keep = SIDE == KEY_BEFORE_QUERY ? lane + n * VL <= i : lane + n * VL >= i;
      float *p = A + i * C + n * VL;
      store(p, (vf)((vi)apply(load(p), i, n * VL) & keep));
    }
}

// den[i] = sum_j A[i][j] + phi(q_i) . z  ->  factor[i] = scale / (scale den + eps), or scale; 0 for missing tokens.
NOINLINE void factors(const Shape &s, const Scratch &w, const float *A, const Stream &st, float *factor) {
  const float scale = (float)s.c->scale, eps = (float)s.c->eps;
  vf den[NT] = {};
  if (s.c->normalize) {
    float rows[256];
    const int64_t nb = !s.quad && st.live ? s.nbD : 0;
    for (int i = 0; i < 256; i += 4 * VL) {  // z is loaded once for four vectors of the rows
      vf x[4] = {};
      if (A) UNROLL(4) for (int g = 0; g < 4; ++g) x[g] = load(A + i + g * VL);
      for (int64_t b = 0; b < nb; ++b)
        UNROLL(4) for (int g = 0; g < 4; ++g)
          x[g] += load(w.qn + b * 256 + i + g * VL) * load(st.z + b * 16 + g % NT * VL);
      UNROLL(4) for (int g = 0; g < 4; ++g) store(rows + i + g * VL, x[g]);
    }
    row_sums(den, rows);
    if (s.quad && st.live)
      for (int64_t f = 0; f < s.c->F; ++f)
        UNROLL(4) for (int n = 0; n < NT; ++n) den[n] += st.z[f] * load(w.fq + f * C + n * VL);
  }
  for (int n = 0; n < NT; ++n) {
    vf x = s.c->normalize ? scale / (den[n] * scale + eps) : splat(scale);
    vf valid = load(w.valid + n * VL);
    store(factor + n * VL, valid > 0.0f ? x : (vf){});
  }
}

INLINE void load_q(const Shape &s, Scratch &w, Rows q, bool transposed) {
  load_natural_by_kind[s.c->kind](w.qn, q, s.c->D, w.valid);
  if (transposed || s.quad) transpose(w.qT, w.qn, s.nbD);
  if (s.quad) build_features(w.fq, s.m, w.qT, w.valid);
}

INLINE void load_k(const Shape &s, Scratch &w, Rows k, bool transposed) {
  load_natural_by_kind[s.c->kind](w.kn, k, s.c->D, w.valid);
  if (transposed || s.quad) transpose(w.kT, w.kn, s.nbD);
  if (s.quad) build_features(w.fk, s.m, w.kT, w.valid);
}

// Load the output gradients of 16 queries into gn and h; missing rows get 0.
INLINE void load_g(const Shape &s, Scratch &w, const Span &sp, const Place &at) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  for (int i = 0; i < C; ++i) w.inv[i] = i < n ? c->inv[(sp.b * c->Tq + t + i) * c->H + h] : 0.0f;
  load_output_grad(w.gn, w.h, g_rows(c, sp, h, t), out_rows(c, sp, h, t), w.inv, c->V, c->normalize);
}

// S += phi(x)^T w over 16 tokens: the 16 features of block blk, `panels` panels (1 or PAIR) from p on.
INLINE void add_block(const Shape &s, Scratch &ws, const Stream &st, const float *natural, const float *features,
                      const float *w, int64_t blk, int64_t p, int64_t panels) {
  const int64_t step = s.Fp * 16, at = p * step + blk * 256;
  const State x = {st.S + at, st.E ? st.E + at : nullptr, step, !st.live};
  const float *a = (s.quad ? features : natural) + blk * 256;
  w += p * 256;
  if (s.quad)
    panels == PAIR ? update_pair<16, 1>(x, a, w, ws.ahead) : update_one<16, 1>(x, a, w, ws.ahead);
  else
    panels == PAIR ? update_pair<1, 16>(x, a, w, ws.ahead) : update_one<1, 16>(x, a, w, ws.ahead);
}

// do_panels(p, panels): all panels, PAIR at a time as long as there are so many.
template <class F>
INLINE void by_pairs(int64_t panels, F do_panels) {
  for (int64_t p = 0; p < panels; p += PAIR) do_panels(p, panels - p < PAIR ? 1 : PAIR);
}

INLINE void add_outer(const Shape &s, Scratch &ws, Stream &st, const float *natural, const float *features,
                      const float *w, int64_t panels) {
  by_pairs(panels, [&](int64_t p, int64_t n) {
    for (int64_t blk = 0; blk < s.nbF; ++blk) add_block(s, ws, st, natural, features, w, blk, p, n);
  });
  st.live = true;
}

// Columns of output from panel p on: the contribution of the state, and (causal, see tile.h) that of A.
INLINE void read_panels(const Shape &s, Scratch &w, const Stream &st, RowsOut o, int64_t p, int64_t panels, int causal,
                        const float *natural, const float *features, const float *values, const float *factor) {
  const int64_t step = s.Fp * 16, nb = st.live ? s.nbF : 0;
  o.p += p * 16;
  o.width -= p * 16;
  if (o.width > panels * 16) o.width = panels * 16;
  const Reading r = {o, causal, w.A, values + p * 256, st.S + p * step, 256, step, factor, nullptr, nullptr};
  if (s.quad)
    panels == PAIR ? read_pair<1, 16>(r, features, nb, w.ahead) : read_one<1, 16>(r, features, nb, w.ahead);
  else
    panels == PAIR ? read_pair<16, 1>(r, natural, nb, w.ahead) : read_one<16, 1>(r, natural, nb, w.ahead);
}

// z += sum_t weight_t phi(x_t)
INLINE void add_sums(const Shape &s, Scratch &w, Stream &st, const float *natural, const float *weight, bool weighted) {
  if (s.quad) {
    const float *x = natural;
    if (weighted) {
      for (int64_t b = 0; b < s.nbD; ++b)
        for (int i = 0; i < C; ++i)
          for (int n = 0; n < NT; ++n)
            store(w.dx + b * 256 + i * 16 + n * VL, load(natural + b * 256 + i * 16 + n * VL) * weight[i]);
      x = w.dx;
    }
    memset(w.sums, 0, s.Fp * sizeof(float));
    add_feature_sums(w.sums, s.m, natural, x, weight);
  } else {
    for (int64_t b = 0; b < s.nbD; ++b) UNROLL(4) for (int n = 0; n < NT; ++n) {
        vf total = {};
        UNROLL(16) for (int i = 0; i < C; ++i) {
          const vf x = load(natural + b * 256 + i * 16 + n * VL);
          total += weighted ? x * weight[i] : x;
        }
        store(w.sums + b * 16 + n * VL, total);
      }
  }
  for (int64_t f = 0; f < s.Fp; f += VL) add_to(st.z + f, st.e ? st.e + f : nullptr, load(w.sums + f));
  if (st.e && ++st.since == FOLD / C) fold(s, st);
}

void accumulate_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part) {
  const Attention *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, part, false, true, false);
  fill_valid(w.valid, c, sp, t, n, true);
  load_k(s, w, k_rows(c, sp, h, t), false);
  load_natural<IDENTITY>(w.vp, v_rows(c, sp, h, t, part.v0), part.V, w.valid);
  add_outer(s, w, st, w.kn, w.fk, w.vp, part.panels);
  add_sums(s, w, st, w.kn, w.valid, false);
}

}  // namespace
