// One token for a batch of streams: s1 = s0 + phi(k) v^T, out = phi(q) s1 / ...; memory-bound by the state.
#pragma once
#include "nn.h"
#include "stream.h"

namespace {

template <int KIND>
INLINE void map_all(float *dst, const float *x, int64_t D) {
  along(D, [&](int64_t i, auto v) { v.put(dst + i, phi<KIND>(v.get(x + i))); });
}

NOINLINE void map_token(int64_t kind, float *dst, const float *x, int64_t D) {
  if (kind == ELU) return map_all<ELU>(dst, x, D);
  if (kind == RELU) return map_all<RELU>(dst, x, D);
  if (kind == RELU2) return map_all<RELU2>(dst, x, D);
  if (kind == EXP) return map_all<EXP>(dst, x, D);
  memcpy(dst, x, D * sizeof(float));
}

void quadratic_token(const Quadratic &m, float *f, const float *x) {
  if (m.c0 > 0.0f) *f++ = m.w0;
  if (m.c1 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) *f++ = x[i] * m.w1;
  if (m.c2 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) {
      *f++ = x[i] * x[i] * m.w_diag;
      const float xi = x[i] * m.w_off;
      for (int64_t j = i + 1; j < m.D; ++j) *f++ = xi * x[j];
    }
}

void token_features(const Shape &s, float *f, const float *x) {
  if (s.quad)
    quadratic_token(s.m, f, x);
  else
    map_token(s.c->kind, f, x, s.c->D);
}

// z1 = z0 + phi(k); returns scale / (scale phi(q).z1 + eps), or scale. T: float, or double for very long streams.
template <class T>
float step_sums(const Attention *c, const float *fq, const float *fk, const T *z0, T *z1) {
  T den = 0;
  for (int64_t f = 0; f < c->F; ++f) {
    z1[f] = (z0 ? z0[f] : (T)0) + (T)fk[f];
    den += (T)fq[f] * z1[f];
  }
  return (float)(c->normalize ? c->scale / ((double)den * c->scale + c->eps) : c->scale);
}

// s1 = s0 + phi(k) v^T, out = factor phi(q) s1 for the columns [m, m + N): the state is read once and written once.
template <class T, int N>
INLINE void step_columns(const Attention *c, const float *fq, const float *fk, const float *v, const T *s0, T *s1,
                         float *out, int64_t m, float factor) {
  T acc[N] = {};
  for (int64_t f = 0; f < c->F; ++f) {
    const int64_t i = f * c->V + m;
    UNROLL(32) for (int n = 0; n < N; ++n) {
      const T x = (T)fk[f] * (T)v[m + n] + (s0 ? s0[i + n] : (T)0);
      s1[i + n] = x;
      acc[n] += (T)fq[f] * x;
    }
  }
  for (int n = 0; n < N; ++n) out[m + n] = (float)acc[n] * factor;
}

template <class T>
void step_one(const Shape &s, float *fq, float *fk, int64_t b, int64_t h) {
  const Attention *c = s.c;
  const int64_t at = b * c->H + h, F = c->F, V = c->V;
  const T *s0 = c->s0 ? (const T *)c->s0 + at * F * V : nullptr, *z0 = c->z0 ? (const T *)c->z0 + at * F : nullptr;
  T *s1 = (T *)c->s_out + at * F * V, *z1 = (T *)c->z_out + at * F;
  const float *v = c->v + b * c->v_strides.b + h * c->v_strides.h;
  float *out = c->out + b * c->o_strides.b + h * c->o_strides.h;
  token_features(s, fq, c->q + b * c->q_strides.b + h * c->q_strides.h);
  token_features(s, fk, c->k + b * c->k_strides.b + h * c->k_strides.h);
  const float factor = step_sums<T>(c, fq, fk, z0, z1);
  constexpr int N = 2 * VL;
  int64_t m = 0;
  for (; m + N <= V; m += N) step_columns<T, N>(c, fq, fk, v, s0, s1, out, m, factor);
  for (; m < V; ++m) step_columns<T, 1>(c, fq, fk, v, s0, s1, out, m, factor);
}

}  // namespace
