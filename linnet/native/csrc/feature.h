// phi of one head of one token: what is learned or drawn first (`prepare`), then the fixed core.
//
//   norm and affine  gamma norm(x) + beta (ReBased)      project   W x + b, then [y, -y] or a softmax (T2R, Hedgehog)
//   FAVOR+           W u - |u|^2 / 2 - log sqrt(F)       Fourier   [cos W u, sin W u] sqrt(2 / F),   u = sqrt(scale) x
//   DPFP             r_i r_(i+j), r = relu([x, -x])      Taylor    all products of up to `order` coordinates
//
// The same formulas as linnet/feature_maps, which are the reference.
#pragma once
#include <math.h>

#include "linnet.h"
#include "nn.h"
#include "step.h"

namespace {

// Mean and 1 / deviation of what one norm of a NORM_AFFINE map covers.
struct Moments {
  float mean, rstd;
};

// Over `heads` heads of width D that lie `stride` floats apart.
Moments moments(const float *x, int64_t heads, int64_t stride, int64_t D, double eps) {
  float all = 0.0f, squares = 0.0f;
  for (int64_t h = 0; h < heads; ++h)
    all += total(D, [&](int64_t i, auto v) { return v.get(x + h * stride + i); });
  const float n = (float)(heads * D), mean = all / n;
  for (int64_t h = 0; h < heads; ++h)
    squares += total(D, [&](int64_t i, auto v) {
      const vf d = v.present(v.get(x + h * stride + i) - mean);
      return d * d;
    });
  return {mean, 1.0f / sqrtf(squares / n + (float)eps)};
}

void softmax_row(float *y, const float *x, int64_t n) {
  float top = x[0];
  for (int64_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  const float sum = total(n, [&](int64_t i, auto v) {
    const vf e = phi<EXP>(v.get(x + i) - top);
    v.put(y + i, e);
    return v.present(e);
  });
  const float scale = 1.0f / sum;
  along(n, [&](int64_t i, auto v) { v.put(y + i, v.get(y + i) * scale); });
}

// y[rows] = factor W x + b, W transposed: [D,rows].
NOINLINE void project_head(float *y, const float *x, const float *w, const float *bias, int64_t D, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) y[r] = 0.0f;
  for (int64_t d = 0; d < D; ++d)
    along(rows, [&](int64_t r, auto v) { v.put(y + r, v.get(y + r) + x[d] * v.get(w + d * rows + r)); });
  if (bias)
    for (int64_t r = 0; r < rows; ++r) y[r] += bias[r];
}

void norm_affine(const linnet_map *m, float *y, const float *x, int64_t head, Moments joint) {
  const int64_t D = m->D, at = m->per_head ? head * D : 0;
  const Moments s = m->norm == 1 ? moments(x, 1, 0, D, m->eps) : joint;
  along(D, [&](int64_t i, auto v) {
    vf a = v.get(x + i);
    if (m->norm) a = (a - s.mean) * s.rstd;
    if (m->weight) a = a * v.get(m->weight + at + i);
    if (m->bias) a = a + v.get(m->bias + at + i);
    v.put(y + i, m->square ? a * a : a);
  });
}

// y = activation(W x + b); `y` has room for 2 * rows more than it returns.
void projected(const linnet_map *m, float *y, const float *x, int64_t head) {
  const int64_t n = m->rows, at = m->per_head ? head : 0;
  project_head(y, x, m->weight + at * m->D * n, m->bias ? m->bias + at * n : nullptr, m->D, n);
  if (m->activation == 0) return;
  for (int64_t r = 0; r < n; ++r) y[n + r] = -y[r];
  if (m->activation == 2) softmax_row(y, y, 2 * n);
  if (m->activation == 3) softmax_row(y, y, n), softmax_row(y + n, y + n, n);
}

void favor(const linnet_map *m, float *y, const float *x) {
  const int64_t n = m->rows;
  project_head(y, x, m->weight, nullptr, m->D, n);
  const float root = (float)sqrt(m->scale);
  const float square = total(m->D, [&](int64_t i, auto v) { return v.get(x + i) * v.get(x + i); });
  const float down = (square * (float)m->scale + (float)log((double)m->F)) * 0.5f;
  for (int64_t r = 0; r < n; ++r) {
    const float w = y[r] * root;
    y[r] = w - down;
    if (m->activation) y[n + r] = -w - down;
  }
}

void fourier(const linnet_map *m, float *y, const float *x) {
  const int64_t n = m->rows;
  project_head(y, x, m->weight, nullptr, m->D, n);
  const float root = (float)sqrt(m->scale), size = (float)sqrt(2.0 / (double)m->F);
  for (int64_t r = 0; r < n; ++r) {
    const float w = y[r] * root;
    y[r] = cosf(w) * size;
    y[n + r] = sinf(w) * size;
  }
}

void dpfp(const linnet_map *m, float *y, const float *x, float *r) {
  const int64_t n = 2 * m->D;
  for (int64_t i = 0; i < m->D; ++i) {
    r[i] = x[i] > 0.0f ? x[i] : 0.0f;
    r[m->D + i] = -x[i] > 0.0f ? -x[i] : 0.0f;
  }
  for (int64_t j = 1; j <= m->order; ++j)
    for (int64_t i = 0; i < n; ++i) *y++ = r[i] * r[(i + j) % n];
}

// [1, x, x (x) x, ...], each order weighted; `power` has room for D^order.
void taylor_full(const linnet_map *m, float *y, const float *x, float *power) {
  int64_t n = 1;
  power[0] = 1.0f;
  *y++ = m->weight[0];
  for (int64_t p = 1; p <= m->order; ++p) {
    for (int64_t i = n - 1; i >= 0; --i)  // from the back: each entry is read before its place is written
      for (int64_t d = m->D - 1; d >= 0; --d) power[i * m->D + d] = power[i] * x[d];
    n *= m->D;
    for (int64_t i = 0; i < n; ++i) *y++ = power[i] * m->weight[p];
  }
}

NOINLINE void monomials(const linnet_map *m, float *f, const float *x) {
  for (int64_t i = 0; i < m->F; ++i) {
    float product = 1.0f;
    for (int64_t p = 0; p < m->order && m->index[i * m->order + p] >= 0; ++p) product *= x[m->index[i * m->order + p]];
    f[i] = product * m->weight[i];
  }
}

// f [F] = phi(x [D]) with the parameters of key-value head `head`; `joint` is used by a norm over all heads; `room` has
// space for 4 max(R, F, D).
void head_features(const linnet_map *m, float *f, const float *x, int64_t head, Moments joint, float *room) {
  const bool whole = m->core == IDENTITY;  // nothing follows: prepare writes the features
  float *y = whole ? f : room, *more = room + 2 * m->R;
  switch (m->prepare) {
    case LINNET_NORM_AFFINE: norm_affine(m, y, x, head, joint); break;
    case LINNET_PROJECT: projected(m, y, x, head); break;
    case LINNET_FAVOR: favor(m, y, x); break;
    case LINNET_FOURIER: fourier(m, y, x); break;
    case LINNET_SOFTMAX_FEATURES: softmax_row(y, x, m->D); break;
    case LINNET_DPFP: dpfp(m, y, x, more); break;
    case LINNET_TAYLOR_FULL: taylor_full(m, y, x, more); break;
    default:
      if (whole) memcpy(f, x, m->D * sizeof(float));
      y = (float *)x;
  }
  if (whole) return;
  if (m->core == LINNET_MONOMIALS) return monomials(m, f, y);
  if (m->core == QUADRATIC) {
    const Quadratic k = {(float)m->w0, (float)m->w1, (float)m->w_diag, (float)m->w0, (float)m->w1, (float)m->w_diag,
                         (float)m->w_off, m->R};  // of the coefficients only the sign is read
    return quadratic_token(k, f, y);
  }
  map_token(m->core, f, y, m->R);
}

}  // namespace
