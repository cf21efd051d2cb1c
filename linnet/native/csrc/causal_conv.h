// Short convolution along time, row by row: one filter of K numbers per channel, with an optional gate around it.
//
//   c_t = bias + sum_{j<K} w_j x_{t-j},   out = c, or out = c * gate + x;   x = 0 before row 0 of each sequence
//
// Forward and backward are one sweep each: what a row needs of its neighbours is still in the first-level cache. Groups
// and sums as in nn.h; the fields of a call are in nn_fields.h.
#pragma once
#include "nn.h"

namespace {

// How many of the K rows that end (past) or begin (ahead) with row r belong to its sequence.
struct Reach {
  int64_t past, ahead;
  template <class C>
  Reach(const C *c, int64_t r) {
    const int64_t t = r % c->length, left = c->length - t, K = c->kernel_size;
    past = t + 1 < K ? t + 1 : K;
    ahead = left < K ? left : K;
  }
};

// c of row r at columns i..i+VL.
template <class C, class V>
INLINE vf convolved(const C *c, const float *x, int64_t i, int64_t past, V v) {
  const int64_t N = c->cols;
  vf y = c->bias ? v.get(c->bias + i) : vf{};
  for (int64_t j = 0; j < past; ++j) y += v.get(c->weight + j * N + i) * v.get(x - j * N + i);
  return y;
}

INLINE void causal_conv_row(const linnet_causal_conv_call *c, int64_t r) {
  const int64_t N = c->cols;
  const float *x = c->x + r * N, *gate = c->gate ? c->gate + r * N : nullptr;
  float *out = c->out + r * N;
  const Reach reach(c, r);
  along(N, [&](int64_t i, auto v) {
    vf y = convolved(c, x, i, reach.past, v);
    if (gate) y = y * v.get(gate + i) + v.get(x + i);
    v.put(out + i, y);
  });
}

// With u = g * gate, or g without a gate:  dx_t = g + sum_j w_j u_{t+j} (without the g where there is no gate),
// dgate = g * c,  sums [K,cols] += u_t x_{t-j}, and then [cols] += u_t.
INLINE void causal_conv_backward_row(const linnet_causal_conv_backward_call *c, int64_t r, float *sums) {
  const int64_t N = c->cols, K = c->kernel_size;
  const float *x = c->x + r * N, *g = c->g + r * N, *gate = c->gate ? c->gate + r * N : nullptr;
  float *dx = c->dx + r * N;
  const Reach reach(c, r);
  along(N, [&](int64_t i, auto v) {
    const vf gi = v.get(g + i), u = gate ? gi * v.get(gate + i) : gi;
    vf d = v.get(c->weight + i) * u;
    for (int64_t j = 1; j < reach.ahead; ++j) {
      const vf later = v.get(g + j * N + i);
      d += v.get(c->weight + j * N + i) * (gate ? later * v.get(gate + j * N + i) : later);
    }
    if (gate) {
      d += gi;
      v.put(c->dgate + r * N + i, gi * convolved(c, x, i, reach.past, v));
    }
    v.put(dx + i, d);
    for (int64_t j = 0; j < reach.past; ++j) {
      float *const s = sums + j * N + i;
      v.put(s, v.get(s) + u * v.get(x - j * N + i));
    }
    v.put(sums + K * N + i, v.get(sums + K * N + i) + u);
  });
}

int causal_conv(const linnet_causal_conv_call *c) {
  return each_row(c, [=](int64_t r) { causal_conv_row(c, r); });
}

int causal_conv_backward(const linnet_causal_conv_backward_call *c) {
  const int64_t count = c->kernel_size * c->cols;
  return each_row_summed(
      c, count + c->cols, [=](int64_t r, float *s) { causal_conv_backward_row(c, r, s); },
      [=](int64_t i, float total) {
        float *const to = i < count ? c->dweight : c->dbias;
        if (to) to[i < count ? i : i - count] += total;
      });
}

}  // namespace
