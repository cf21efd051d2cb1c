// Short convolution along time, row by row: one filter of K taps per channel, and a gate around it where there is one.
//
//   c_t = bias + sum_{j<K} w_j x_{t-j},   out = c, or out = c * gate + x;   x = 0 before row 0 of each sequence
//
// Rows are the tokens of sequences of `period` rows; w_j is for the input j tokens ago. Forward and backward are one
// sweep each: what a row needs of its neighbours is still in the first-level cache. Groups and sums as in nn.h.
#pragma once
#include "nn.h"

namespace {

// How many of the K rows that end (past) or begin (ahead) with row r belong to its sequence.
struct Reach {
  int64_t past, ahead;
  Reach(const linnet_rows *c, int64_t r) {
    const int64_t t = r % c->period, left = c->period - t;
    past = t + 1 < c->width ? t + 1 : c->width;
    ahead = left < c->width ? left : c->width;
  }
};

// c of row r at columns i..i+VL.
template <class V>
INLINE vf convolved(const linnet_rows *c, const float *x, int64_t i, int64_t past, V v) {
  const int64_t N = c->cols;
  vf y = c->bias ? v.get(c->bias + i) : vf{};
  for (int64_t j = 0; j < past; ++j) y += v.get(c->weight + j * N + i) * v.get(x - j * N + i);
  return y;
}

// x, out [rows, cols]; weight [width, cols]; y: the gate (null: none).
INLINE void taps_row(const linnet_rows *c, int64_t r) {
  const int64_t N = c->cols;
  const float *x = c->x + r * N, *gate = c->y ? c->y + r * N : nullptr;
  float *out = c->out + r * N;
  const Reach reach(c, r);
  along(N, [&](int64_t i, auto v) {
    vf y = convolved(c, x, i, reach.past, v);
    if (gate) y = y * v.get(gate + i) + v.get(x + i);
    v.put(out + i, y);
  });
}

// From y = g, the gradient of out, and stat = the gate (null: none), with u = g * gate (or g):
// out = dx_t = g + sum_j w_j u_{t+j} (without the g where there is no gate); out2 = dgate = g * c;
// sums [width, cols] += u_t x_{t-j}, and [cols] += u_t.
INLINE void taps_backward_row(const linnet_rows *c, int64_t r, float *sums) {
  const int64_t N = c->cols, K = c->width;
  const float *x = c->x + r * N, *g = c->y + r * N, *gate = c->stat ? c->stat + r * N : nullptr;
  float *dx = c->out + r * N;
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
      v.put(c->out2 + r * N + i, gi * convolved(c, x, i, reach.past, v));
    }
    v.put(dx + i, d);
    for (int64_t j = 0; j < reach.past; ++j) {
      float *const s = sums + j * N + i;
      v.put(s, v.get(s) + u * v.get(x - j * N + i));
    }
    v.put(sums + K * N + i, v.get(sums + K * N + i) + u);
  });
}

int taps(const linnet_rows *c) {
  return each_row(c, [=](int64_t r) { taps_row(c, r); });
}

int taps_backward(const linnet_rows *c) {
  const int64_t count = c->width * c->cols;
  return each_row_summed(
      c, count + c->cols, [=](int64_t r, float *s) { taps_backward_row(c, r, s); },
      [=](int64_t i, float total) {
        float *const to = i < count ? c->sum : c->sum2;
        if (to) to[i < count ? i : i - count] += total;
      });
}

}  // namespace
