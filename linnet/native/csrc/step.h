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

// s1 = s0 + phi(k) v^T, out = factor phi(q) s1 for N vectors of columns at a time, from m on: the state is read once and
// written once. X: a vector of T, or T itself. Returns the first column that is left.
template <class T, class X, int N>
INLINE int64_t step_columns(const Attention *c, const float *fq, const float *fk, const float *v, const T *s0, T *s1,
                            float *out, int64_t m, float factor) {
  constexpr int LANES = sizeof(X) / sizeof(T);
  for (; m + N * LANES <= c->V; m += N * LANES) {
    T values[N * LANES], sums[N * LANES];
    for (int i = 0; i < N * LANES; ++i) values[i] = (T)v[m + i];
    X value[N], acc[N] = {};
    UNROLL(4) for (int n = 0; n < N; ++n) memcpy(&value[n], values + n * LANES, sizeof(X));
    for (int64_t f = 0; f < c->F; ++f) {
      const T key = (T)fk[f], query = (T)fq[f];
      UNROLL(4) for (int n = 0; n < N; ++n) {
        const int64_t i = f * c->V + m + n * LANES;
        X x = {};
        if (s0) memcpy(&x, s0 + i, sizeof(X));
        x = value[n] * key + x;
        memcpy(s1 + i, &x, sizeof(X));
        acc[n] += x * query;
      }
    }
    UNROLL(4) for (int n = 0; n < N; ++n) memcpy(sums + n * LANES, &acc[n], sizeof(X));
    for (int i = 0; i < N * LANES; ++i) out[m + i] = (float)sums[i] * factor;
  }
  return m;
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
  typedef T Vector __attribute__((vector_size(VL * 4)));
  int64_t m = step_columns<T, Vector, 4>(c, fq, fk, v, s0, s1, out, 0, factor);
  m = step_columns<T, Vector, 1>(c, fq, fk, v, s0, s1, out, m, factor);
  step_columns<T, T, 1>(c, fq, fk, v, s0, s1, out, m, factor);
}

}  // namespace
