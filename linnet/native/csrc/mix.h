// One token of one stream through attention and convolutions, whose state is updated in place.
//
//   linear     s [F,V] += phi(k) v^T,  z [F] += phi(k),  out = phi(q) s / (phi(q) . z + eps);  all s, all z [kv,.],
//              then the rounding errors of both if the layer is exact
//   softmax    keys in blocks of 16 tokens [kv][T/16][D][16], values [kv][T][V]; a window: the same, T = t % window
//   conv       the last K - 1 inputs [K-1][N], the input of time t at place t % (K - 1)
//
// Sums run in an order that depends on sizes alone: not on threads, not on the other rows.
#pragma once
#include "feature.h"

namespace {

// The next n floats of scratch memory.
INLINE float *take(float **p, int64_t n) {
  float *at = *p;
  *p += n;
  return at;
}

template <int N>
struct Vectors {
  static constexpr int count = N;
};

// sums += x. If EXACT the rounding errors are summed `apart` floats after the sums, so that the millionth token counts
// as much as the first: Fast2Sum, exact while |sum| >= |x|.
template <bool EXACT, class L>
INLINE vf add_to_sums(float *sums, int64_t apart, vf x, L lanes) {
  if (!EXACT) {
    x += lanes.get(sums);
    lanes.put(sums, x);
    return x;
  }
  const vf old = lanes.get(sums), sum = old + x, error = lanes.get(sums + apart) + (x - (sum - old));
  lanes.put(sums, sum);
  lanes.put(sums + apart, error);
  return sum + error;
}

// s += fk v^T and acc = fq s for N vectors of columns; even and odd features are summed separately.
template <int N, bool UPDATE, bool EXACT, class L>
INLINE void linear_columns(float *s, int64_t apart, const float *fq, const float *fk, const float *v, float *out,
                           int64_t F, int64_t V, float factor, L lanes) {
  vf value[N], acc[2][N] = {};
  UNROLL(4) for (int n = 0; n < N; ++n) value[n] = UPDATE ? lanes.get(v + n * VL) : (vf){};
  const auto one = [&](int64_t f, vf *to) {
    UNROLL(4) for (int n = 0; n < N; ++n) {
      float *p = s + f * V + n * VL;
      vf x;
      if (UPDATE)
        x = add_to_sums<EXACT>(p, apart, fk[f] * value[n], lanes);
      else
        x = EXACT ? lanes.get(p) + lanes.get(p + apart) : lanes.get(p);
      to[n] += fq[f] * x;
    }
  };
  int64_t f = 0;
  for (; f + 2 <= F; f += 2) one(f, acc[0]), one(f + 1, acc[1]);
  if (f < F) one(f, acc[0]);
  UNROLL(4) for (int n = 0; n < N; ++n) lanes.put(out + n * VL, (acc[0][n] + acc[1][n]) * factor);
}

template <bool UPDATE, bool EXACT>
NOINLINE void linear_read(float *s, int64_t apart, const float *fq, const float *fk, const float *v, float *out,
                          int64_t F, int64_t V, float factor) {
  int64_t m = 0;
  const auto columns = [&](auto n, auto lanes) {
    linear_columns<decltype(n)::count, UPDATE, EXACT>(s + m, apart, fq, fk, v + m, out + m, F, V, factor, lanes);
    m += decltype(n)::count * VL;
  };
  while (m + 4 * VL <= V) columns(Vectors<4>{}, Whole{});
  while (m + 2 * VL <= V) columns(Vectors<2>{}, Whole{});
  while (m + VL <= V) columns(Vectors<1>{}, Whole{});
  if (m < V) columns(Vectors<1>{}, Rest{V - m});
}

// One key-value head and the G queries that read it: fq [G,F], out [G,V].
template <bool EXACT>
void linear_head(float *s, float *z, int64_t apart, const float *fq, const float *fk, const float *v, float *out,
                 int64_t G, int64_t F, int64_t V, double eps) {
  along(F, [&](int64_t f, auto l) { add_to_sums<EXACT>(z + f, apart, l.get(fk + f), l); });
  for (int64_t g = 0; g < G; ++g) {
    const float *q = fq + g * F;
    const float den = total(F, [&](int64_t f, auto l) {
      return l.get(q + f) * (EXACT ? l.get(z + f) + l.get(z + apart + f) : l.get(z + f));
    });
    const float factor = (float)(1.0 / ((double)den + eps));
    (g == 0 ? linear_read<true, EXACT> : linear_read<false, EXACT>)(s, apart, q, fk, v, out + g * V, F, V, factor);
  }
}

// ---- softmax over cached tokens -------------------------------------------------------------------------------------

void put_key(float *keys, const float *k, int64_t t, int64_t D) {
  float *block = keys + t / 16 * 16 * D + t % 16;
  for (int64_t d = 0; d < D; ++d) block[d * 16] = k[d];
}

// out[16 M] = q . keys of M blocks.
template <int M>
INLINE void score_blocks(float *out, const float *q, const float *keys, int64_t D) {
  vf acc[M][NT] = {};
  for (int64_t d = 0; d < D; ++d) UNROLL(4) for (int m = 0; m < M; ++m) UNROLL(4) for (int n = 0; n < NT; ++n) {
    acc[m][n] += q[d] * load(keys + m * 16 * D + d * 16 + n * VL);
  }
  UNROLL(4) for (int m = 0; m < M; ++m) UNROLL(4) for (int n = 0; n < NT; ++n) store(out + m * 16 + n * VL, acc[m][n]);
}

template <class L>
INLINE void weighted_columns(float *out, const float *p, const float *values, int64_t n, int64_t V, float factor,
                             L lanes) {
  vf acc[4] = {};
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) UNROLL(4) for (int i = 0; i < 4; ++i) acc[i] += p[t + i] * lanes.get(values + (t + i) * V);
  for (; t < n; ++t) acc[0] += p[t] * lanes.get(values + t * V);
  lanes.put(out, ((acc[0] + acc[1]) + (acc[2] + acc[3])) * factor);
}

// out [V] = softmax(scale q . k) v over n tokens; p has room for n rounded up to 16.
NOINLINE void softmax_head(float *out, const float *q, const float *keys, const float *values, int64_t n, int64_t D,
                           int64_t V, float scale, float *p) {
  int64_t t = 0;
  for (; t + 64 <= n; t += 64) score_blocks<4>(p + t, q, keys + t * D, D);
  for (; t < n; t += 16) score_blocks<1>(p + t, q, keys + t * D, D);
  float top = p[0];
  for (int64_t i = 1; i < n; ++i) top = p[i] > top ? p[i] : top;
  const float sum = total(n, [&](int64_t i, auto l) {
    const vf e = phi<EXP>((l.get(p + i) - top) * scale);
    l.put(p + i, e);
    return l.present(e);
  });
  along(V, [&](int64_t m, auto l) { weighted_columns(out + m, p, values + m, n, V, 1.0f / sum, l); });
}

// ---- short convolution ----------------------------------------------------------------------------------------------

// y [c0, c1) = bias + sum_j filter[j] x(t - j); the input of this token then takes the oldest's place.
// y may be x.
void conv_channels(const linnet_layer *l, float *past, const float *x, float *y, int64_t t, int64_t c0, int64_t c1) {
  const int64_t N = l->channels, W = l->kernel_size - 1, newest = W ? t % W : 0;
  along(c1 - c0, [&](int64_t i, auto v) {
    const int64_t c = c0 + i;
    const vf now = v.get(x + c);
    vf sum = v.get(l->filter_bias + c) + now * v.get(l->filter + c);
    for (int64_t j = 1, place = newest; j <= W; ++j) {
      place = (place ? place : W) - 1;  // before the first token: places that still hold zeros
      sum += v.get(past + place * N + c) * v.get(l->filter + j * N + c);
    }
    if (W) v.put(past + newest * N + c, now);
    v.put(y + c, sum);
  });
}

}  // namespace
