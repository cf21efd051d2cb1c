// The rest of a transformer, row by row: norms, activations, rotation, cross entropy. What takes torch several sweeps
// over memory is one here, while a row is in the first-level cache. The fields of a call are in nn_fields.h.
//
// Rows are split into groups by their number alone. A group is the work of one thread, and sums over rows are added
// group by group: the number of threads changes no bit.
#pragma once
#include "lanes.h"
#include "linnet.h"
#include "load.h"

#include <math.h>
#include <stdlib.h>

namespace {

constexpr int64_t GROUP = 32, MOST_GROUPS = 64;  // rows in a group at least, and groups at most

struct Groups {
  int64_t rows, each, count;
  explicit Groups(int64_t n) : rows(n) {
    each = (n + MOST_GROUPS - 1) / MOST_GROUPS;
    if (each < GROUP) each = GROUP;
    count = (n + each - 1) / each;
  }
  int64_t end(int64_t group) const { return (group + 1) * each < rows ? (group + 1) * each : rows; }
};

// The sum of f over a row, in four independent partial sums: each addition of a single one would wait for the last.
template <class F>
INLINE float total(int64_t n, F f) {
  vf part[4] = {};
  int64_t i = 0;
  for (; i + 4 * VL <= n; i += 4 * VL) {
    UNROLL(4) for (int j = 0; j < 4; ++j) part[j] += f(i + j * VL, Whole{});
  }
  along(n - i, [&](int64_t j, auto v) { part[0] += f(i + j, v); });
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

// 1 / x to the last bit but one, for x of ordinary size.
INLINE vf inverse(vf x) {
#if defined(__AVX512F__)
  const vf r = (vf)_mm512_rcp14_ps((__m512)x);
  return r + r * (1.0f - x * r);
#elif defined(__AVX2__)
  const vf r = (vf)_mm256_rcp_ps((__m256)x);
  return r + r * (1.0f - x * r);
#else
  return 1.0f / x;
#endif
}

// ---- norms: y = (x - mean) rstd weight + bias; RMS: mean = 0 -------------------------------------------------------

// y [N] from x [N]; the mean and 1 / deviation go to stat unless it is null. y may be x.
template <bool RMS>
INLINE void normalize(float *y, const float *x, const float *weight, const float *bias, int64_t N, double eps,
                      float *stat) {
  const float mean = RMS ? 0.0f : total(N, [&](int64_t i, auto v) { return v.get(x + i); }) / (float)N;
  const float var = total(N, [&](int64_t i, auto v) {
    const vf d = v.present(v.get(x + i) - mean);
    return d * d;
  }) / (float)N;
  const float rstd = 1.0f / sqrtf(var + (float)eps);
  along(N, [&](int64_t i, auto v) {
    vf n = (v.get(x + i) - mean) * rstd;
    if (weight) n = n * v.get(weight + i);
    if (bias) n = n + v.get(bias + i);
    v.put(y + i, n);
  });
  if (stat) stat[0] = mean, stat[1] = rstd;
}

template <bool RMS>
INLINE void norm_row(const linnet_norm_call *c, int64_t r) {
  const int64_t N = c->cols;
  normalize<RMS>(c->out + r * N, c->x + r * N, c->weight, c->bias, N, c->eps, c->stat + 2 * r);
}

// With n = (x - mean) rstd and h = g weight:  dx = rstd (h - mean(h) - n mean(h n)),  dweight += g n,  dbias += g.
template <bool RMS>
INLINE void norm_backward_row(const linnet_norm_backward_call *c, int64_t r, float *dweight, float *dbias) {
  const int64_t N = c->cols;
  const float *x = c->x + r * N, *g = c->g + r * N;
  const float mean = c->stat[2 * r], rstd = c->stat[2 * r + 1];
  float *dx = c->dx + r * N;
  vf along_1 = {}, along_n = {};
  along(N, [&](int64_t i, auto v) {
    const vf n = (v.get(x + i) - mean) * rstd, gi = v.get(g + i);
    const vf h = c->weight ? gi * v.get(c->weight + i) : gi;
    if (!RMS) along_1 += h;
    along_n += h * n;
    if (c->dweight) v.put(dweight + i, v.get(dweight + i) + gi * n);
    if (c->dbias) v.put(dbias + i, v.get(dbias + i) + gi);
  });
  const float m1 = RMS ? 0.0f : sum(along_1) / (float)N, mn = sum(along_n) / (float)N;
  along(N, [&](int64_t i, auto v) {
    const vf n = (v.get(x + i) - mean) * rstd, gi = v.get(g + i);
    const vf h = c->weight ? gi * v.get(c->weight + i) : gi;
    v.put(dx + i, (h - m1 - n * mn) * rstd);
  });
}

// ---- activations: relu, gelu, and swiglu, whose rows hold the gate and then the value -------------------------------

enum Activation { ACT_RELU = 0, ACT_GELU = 1, ACT_SWIGLU = 2 };

// gelu(x) = x P(x), P the normal distribution, by P(-z) = e^(-z^2/2) m(t), t = 1 / (1 + 0.34 z): m is a polynomial that
// is off by 8e-8 where P is not next to nothing. The slope P(x) + x e^(-x^2/2) / sqrt(2 pi) has the same exponential.
INLINE vf gelu(vf x, vf *slope) {
  const vf c = min_(max_(x, -13.0f), 13.0f), z = (vf)((vi)c & 0x7fffffff);
  const vf t = inverse(z * 0.34f + 1.0f), e = exp_in_range<true>(z * z * -0.5f);
  vf m = splat(0.045590260f);
  m = m * t - 0.203745597f;
  m = m * t + 0.269583120f;
  m = m * t - 0.035595589f;
  m = m * t + 0.158912059f;
  m = m * t + 0.129178384f;
  m = m * t + 0.136077336f;
  const vf tail = m * t * e;  // P(-z)
  if (slope) *slope = (c > 0.0f ? 1.0f - tail : tail) + c * e * 0.398942280f;
  return max_(x, 0.0f) - z * tail;  // a NaN travels in the first term
}

INLINE vf sigmoid(vf x) { return inverse(exp_in_range<true>(-min_(max_(x, -87.0f), 87.0f)) + 1.0f); }

template <int KIND>
INLINE vf activate(vf x, vf *slope) {
  if (KIND == ACT_GELU) return gelu(x, slope);
  if (KIND == ACT_SWIGLU) {
    const vf s = sigmoid(x);
    if (slope) *slope = s * (1.0f + x * (1.0f - s));
    return x * s;
  }
  if (slope) *slope = x > 0.0f ? splat(1.0f) : (vf){};
  return max_(x, 0.0f);
}

// hidden [rows,width] += bias, out [rows,cols] = act(hidden).
template <int KIND>
INLINE void activation_row(const linnet_activation_call *c, int64_t r) {
  const int64_t N = c->cols, W = KIND == ACT_SWIGLU ? 2 * N : N;
  float *x = c->hidden + r * W, *y = c->out + r * N;
  along(N, [&](int64_t i, auto v) {
    vf a = v.get(x + i);
    if (c->bias) v.put(x + i, a = a + v.get(c->bias + i));
    a = activate<KIND>(a, nullptr);
    if (KIND == ACT_SWIGLU) {
      vf b = v.get(x + N + i);
      if (c->bias) v.put(x + N + i, b = b + v.get(c->bias + N + i));
      a = a * b;
    }
    v.put(y + i, a);
  });
}

// From hidden [rows,width] (with its bias) and g = d out: dhidden, which may be g itself when as wide; out =
// act(hidden) once more; dbias += dhidden.
template <int KIND>
INLINE void activation_backward_row(const linnet_activation_backward_call *c, int64_t r, float *dbias) {
  const int64_t N = c->cols, W = KIND == ACT_SWIGLU ? 2 * N : N;
  const float *x = c->hidden + r * W, *g = c->g + r * N;
  float *dx = c->dhidden + r * W, *a = c->out + r * N;
  const auto write = [&](int64_t i, vf d, auto v) {
    v.put(dx + i, d);
    if (c->dbias) v.put(dbias + i, v.get(dbias + i) + d);
  };
  along(N, [&](int64_t i, auto v) {
    vf slope;
    const vf gi = v.get(g + i), y = activate<KIND>(v.get(x + i), &slope);
    if (KIND == ACT_SWIGLU) {
      const vf b = v.get(x + N + i);
      v.put(a + i, y * b);
      write(i, gi * b * slope, v);
      write(N + i, gi * y, v);
    } else {
      v.put(a + i, y);
      write(i, gi * slope, v);
    }
  });
}

// ---- the gate of a mixer: out = (x + skip u) silu(z); z and u may be columns of wider rows ---------------------------

INLINE void gate_row(const linnet_gate_call *c, int64_t r) {
  const int64_t N = c->cols;
  const float *x = c->x + r * N, *z = c->z + r * c->z_stride, *u = c->u ? c->u + r * c->u_stride : nullptr;
  float *y = c->out + r * N;
  along(N, [&](int64_t i, auto v) {
    vf a = v.get(x + i);
    if (u) a += v.get(c->skip + i) * v.get(u + i);
    v.put(y + i, a * activate<ACT_SWIGLU>(v.get(z + i), nullptr));
  });
}

INLINE void gate_backward_row(const linnet_gate_backward_call *c, int64_t r, float *dskip) {
  const int64_t N = c->cols, at = r * N;
  const float *x = c->x + at, *g = c->g + at, *z = c->z + r * c->z_stride;
  const float *u = c->u ? c->u + r * c->u_stride : nullptr;
  along(N, [&](int64_t i, auto v) {
    vf slope, a = v.get(x + i);
    const vf gi = v.get(g + i), d = gi * activate<ACT_SWIGLU>(v.get(z + i), &slope);
    if (u) {
      const vf ui = v.get(u + i), s = v.get(c->skip + i);
      a += s * ui;
      v.put(c->du + at + i, d * s);
      v.put(dskip + i, v.get(dskip + i) + d * ui);
    }
    v.put(c->dx + at + i, d);
    v.put(c->dz + at + i, gi * a * slope);
  });
}

// ---- token shift: mixtures of a row and of what the row before it adds, x + share change ----------------------------

INLINE void mixtures_row(const linnet_mixtures_call *c, int64_t r) {
  const int64_t N = c->cols;
  const float *x = c->x + r * N, *change = c->change + r * N;
  for (int64_t k = 0; k < c->count; ++k) {
    const float *share = c->share + k * N;
    float *y = c->out + (k * c->rows + r) * N;
    along(N, [&](int64_t i, auto v) { v.put(y + i, v.get(x + i) + v.get(share + i) * v.get(change + i)); });
  }
}

INLINE void mixtures_backward_row(const linnet_mixtures_backward_call *c, int64_t r, float *dshare) {
  const int64_t N = c->cols, at = r * N;
  const float *const grads[] = {c->g0, c->g1, c->g2, c->g3, c->g4, c->g5, c->g6, c->g7};
  const float *change = c->change + at;
  along(N, [&](int64_t i, auto v) {
    vf dx = {}, dchange = {};
    const vf by = v.get(change + i);
    for (int64_t k = 0; k < c->count; ++k) {
      if (!grads[k]) continue;
      const vf g = v.get(grads[k] + at + i);
      float *const to = dshare + k * N + i;
      dx += g;
      dchange += g * v.get(c->share + k * N + i);
      v.put(to, v.get(to) + g * by);
    }
    v.put(c->dx + at + i, dx);
    v.put(c->dchange + at + i, dchange);
  });
}

// ---- rotation of the pairs (i, i + D/2) of every head; rows may be strided, and out may be x ------------------------

INLINE void rotate_row(const linnet_rotate_call *c, int64_t r) {
  const int64_t N = c->cols, half = c->half, D = 2 * half;
  const float *x = c->x + r * c->x_stride;
  float *y = c->out + r * c->out_stride;
  if (!c->cos) {
    if (x != y) memcpy(y, x, N * sizeof(float));
    return;
  }
  const int64_t at = (c->first + r) % c->period * half;
  const float *cos = c->cos + at, *sin = c->sin + at;
  const float sign = c->back ? -1.0f : 1.0f;
  for (int64_t h = 0; h < N; h += D)
    along(half, [&](int64_t i, auto v) {
      const vf a = v.get(x + h + i), b = v.get(x + h + half + i), p = v.get(cos + i), q = v.get(sin + i) * sign;
      v.put(y + h + i, a * p - b * q);
      v.put(y + h + half + i, a * q + b * p);
    });
}

// ---- cross entropy of one row of scores: its loss; with `gradient`, the row becomes softmax - onehot ----------------

INLINE void cross_entropy_row(const linnet_cross_entropy_call *c, int64_t r) {
  const int64_t N = c->cols, target = c->targets[r];
  float *x = c->scores + r * N;
  if (target < 0) {
    c->losses[r] = 0.0f;
    if (c->gradient) memset(x, 0, N * sizeof(float));
    return;
  }
  float top = x[0], hit = x[target];
  vf most = splat(top);
  int64_t i = 0;
  for (; i + VL <= N; i += VL) {
    const vf v = load(x + i);
    most = v > most ? v : most;
  }
  float buf[VL];
  store(buf, most);
  for (int lane = 0; lane < VL; ++lane) top = buf[lane] > top ? buf[lane] : top;
  for (; i < N; ++i) top = x[i] > top ? x[i] : top;
  const float all = total(N, [&](int64_t j, auto v) {
    const vf s = v.get(x + j) - top;
    vf e = exp_in_range<true>(max_(s, -87.0f));
    e = s == s ? e : s;  // a NaN stays one
    if (c->gradient) v.put(x + j, e);
    return v.present(e);
  });
  c->losses[r] = (float)(log((double)all) + ((double)top - (double)hit));
  if (!c->gradient) return;
  const float scale = 1.0f / all;
  along(N, [&](int64_t j, auto v) { v.put(x + j, v.get(x + j) * scale); });
  x[target] -= 1.0f;
}

// ---- groups of rows on threads --------------------------------------------------------------------------------------

// C: any call with rows, cols and threads.
template <class C>
int row_threads(const C *c, const Groups &g) {
#ifdef _OPENMP
  if (c->rows * c->cols < 16384 || c->threads < 2 || omp_in_parallel()) return 1;
  linnet_notice(c->threads);
  return (int)(g.count < c->threads ? g.count : c->threads);
#else
  (void)c, (void)g;
  return 1;
#endif
}

template <class C, class F>
int each_row(const C *c, F f) {
  const Groups g(c->rows);
  const int threads = row_threads(c, g);
  (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t group = 0; group < g.count; ++group)
    for (int64_t r = group * g.each; r < g.end(group); ++r) f(r);
  return LINNET_OK;
}

// f(r, sums) adds to the `width` sums of its group; their total goes to out(i, total).
template <class C, class F, class O>
int each_row_summed(const C *c, int64_t width, F f, O out) {
  const Groups g(c->rows);
  if (!g.count) return LINNET_OK;
  float *part = (float *)calloc(g.count * width + 1, sizeof(float));
  if (!part) return LINNET_NO_MEMORY;
  const int threads = row_threads(c, g);
  (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t group = 0; group < g.count; ++group)
    for (int64_t r = group * g.each; r < g.end(group); ++r) f(r, part + group * width);
  for (int64_t group = 1; group < g.count; ++group)
    along(width, [&](int64_t i, auto v) { v.put(part + i, v.get(part + i) + v.get(part + group * width + i)); });
  for (int64_t i = 0; i < width; ++i) out(i, part[i]);
  free(part);
  return LINNET_OK;
}

int norm(const linnet_norm_call *c) {
  if (c->rms) return each_row(c, [=](int64_t r) { norm_row<true>(c, r); });
  return each_row(c, [=](int64_t r) { norm_row<false>(c, r); });
}

int norm_backward(const linnet_norm_backward_call *c) {
  const int64_t N = c->cols;
  const auto out = [=](int64_t i, float total) {
    float *const to = i < N ? c->dweight : c->dbias;
    if (to) to[i % N] += total;
  };
  if (c->rms)
    return each_row_summed(c, 2 * N, [=](int64_t r, float *s) { norm_backward_row<true>(c, r, s, s + N); }, out);
  return each_row_summed(c, 2 * N, [=](int64_t r, float *s) { norm_backward_row<false>(c, r, s, s + N); }, out);
}

int activation(const linnet_activation_call *c) {
  if (c->kind == ACT_RELU) return each_row(c, [=](int64_t r) { activation_row<ACT_RELU>(c, r); });
  if (c->kind == ACT_GELU) return each_row(c, [=](int64_t r) { activation_row<ACT_GELU>(c, r); });
  return each_row(c, [=](int64_t r) { activation_row<ACT_SWIGLU>(c, r); });
}

int activation_backward(const linnet_activation_backward_call *c) {
  const auto out = [=](int64_t i, float total) {
    if (c->dbias) c->dbias[i] += total;
  };
  const int64_t N = c->cols;
  if (c->kind == ACT_RELU)
    return each_row_summed(c, N, [=](int64_t r, float *s) { activation_backward_row<ACT_RELU>(c, r, s); }, out);
  if (c->kind == ACT_GELU)
    return each_row_summed(c, N, [=](int64_t r, float *s) { activation_backward_row<ACT_GELU>(c, r, s); }, out);
  return each_row_summed(c, 2 * N, [=](int64_t r, float *s) { activation_backward_row<ACT_SWIGLU>(c, r, s); }, out);
}

int gate(const linnet_gate_call *c) {
  return each_row(c, [=](int64_t r) { gate_row(c, r); });
}

int gate_backward(const linnet_gate_backward_call *c) {
  const auto out = [=](int64_t i, float total) {
    if (c->dskip) c->dskip[i] += total;
  };
  return each_row_summed(c, c->cols, [=](int64_t r, float *s) { gate_backward_row(c, r, s); }, out);
}

int mixtures(const linnet_mixtures_call *c) {
  return each_row(c, [=](int64_t r) { mixtures_row(c, r); });
}

int mixtures_backward(const linnet_mixtures_backward_call *c) {
  const auto out = [=](int64_t i, float total) { c->dshare[i] += total; };
  const int64_t width = c->count * c->cols;
  return each_row_summed(c, width, [=](int64_t r, float *s) { mixtures_backward_row(c, r, s); }, out);
}

int rotate(const linnet_rotate_call *c) {
  return each_row(c, [=](int64_t r) { rotate_row(c, r); });
}

int cross_entropy(const linnet_cross_entropy_call *c) {
  return each_row(c, [=](int64_t r) { cross_entropy_row(c, r); });
}

int column_sums(const linnet_column_sums_call *c) {
  const auto add = [=](int64_t r, float *s) {
    const float *x = c->x + r * c->x_stride;
    along(c->cols, [&](int64_t i, auto v) { v.put(s + i, v.get(s + i) + v.get(x + i)); });
  };
  return each_row_summed(c, c->cols, add, [=](int64_t i, float total) { c->sums[i] += total; });
}

}  // namespace
