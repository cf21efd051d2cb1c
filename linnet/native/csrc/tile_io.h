// Moving 16 tokens between strided tensors and the scratch memory the tiles read.
//
//   natural   [D/16][16 tokens][16 widths]   rows in their order, mapped by phi while loading; values and gradients too
//   T         [D][16 tokens]                 one width of 16 tokens side by side
//   features  [F][16 tokens]                 quadratic kernels: 1, x_i, x_i x_j (i <= j), weighted
//
// Missing and masked tokens are rows of zeros whatever is in memory, so garbage there has no effect.
#pragma once
#include "tile.h"

namespace {

INLINE void copy_tail(float *dst, const float *src, int64_t n) {  // 16 floats, zeros after the first n
  for (int i = 0; i < 16; ++i) dst[i] = i < n ? src[i] : 0.0f;
}

constexpr int BLOCKS = 4 / NT;  // of four vectors, which are mapped together

// wild (CHECK): the sum of x * 0 over all numbers, which is NaN if one of them is NaN or infinite.
template <int KIND, bool CHECK>
INLINE void load_rows(float *dst, Rows x, int64_t D, const float *valid, vf &wild) {
  const int64_t full = D / 16, tail = D % 16;
  for (int i = 0; i < C; ++i) {
    float *d = dst + i * 16;
    if (valid[i] == 0.0f) {
      for (int64_t b = 0; b < full + (tail > 0); ++b)
        for (int n = 0; n < NT; ++n) store(d + b * 256 + n * VL, (vf){});
      continue;
    }
    const float *p = x.p + i * x.stride;
    vf own[NT] = {};  // of this row: short chains of additions, side by side
    int64_t b = 0;
    for (; b + BLOCKS <= full; b += BLOCKS) {
      vf y[4];
      UNROLL(4) for (int g = 0; g < 4; ++g) y[g] = load(p + b * 16 + g * VL);
      if (CHECK) UNROLL(4) for (int g = 0; g < 4; ++g) own[g % NT] += y[g] * 0.0f;
      phi_each<KIND>(y);
      UNROLL(4) for (int g = 0; g < 4; ++g) store(d + (b + g / NT) * 256 + g % NT * VL, y[g]);
    }
    for (; b < full; ++b) {
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        const vf y = load(p + b * 16 + n * VL);
        if (CHECK) own[n] += y * 0.0f;
        store(d + b * 256 + n * VL, phi<KIND>(y));
      }
    }
    if (tail) {
      float buf[16], mapped[16];
      copy_tail(buf, p + full * 16, tail);
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        const vf y = load(buf + n * VL);
        if (CHECK) own[n] += y * 0.0f;
        store(mapped + n * VL, phi<KIND>(y));
      }
      copy_tail(d + full * 256, mapped, tail);
    }
    if (CHECK) UNROLL(4) for (int n = 0; n < NT; ++n) wild += own[n];
  }
}

template <int KIND>
NOINLINE void load_natural(float *dst, Rows x, int64_t D, const float *valid) {
  vf unused = {};
  load_rows<KIND, false>(dst, x, D, valid, unused);
}

// The values of 16 tokens; false if one of them is NaN or infinite.
NOINLINE bool load_values(float *dst, Rows x, int64_t V, const float *valid) {
  vf wild = {};
  load_rows<IDENTITY, true>(dst, x, V, valid, wild);
  return sum(wild) == 0.0f;
}

typedef void (*LoadNatural)(float *, Rows, int64_t, const float *);
const LoadNatural load_natural_by_kind[] = {load_natural<IDENTITY>, load_natural<ELU>, load_natural<RELU>,
                                            load_natural<RELU2>,    load_natural<EXP>, load_natural<IDENTITY>};

INLINE void transpose(float *xT, const float *natural, int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) transpose16(xT + b * 256, natural + b * 256, 16);
}

// Output gradients of 16 tokens: g * inv in natural layout, and h = -(g . out) * inv, the gradient of the denominator.
NOINLINE void load_output_grad(float *gn, float *h, Rows g, Rows out, const float *inv, int64_t V, bool normalize) {
  float dots[256];
  for (int i = 0; i < C; ++i) {
    const float f = inv[i], *gp = g.p + i * g.stride, *op = out.p + i * out.stride;
    const int64_t full = V / 16, tail = V % 16, blocks = full + (tail > 0);
    float *to = gn + i * 16;
    vf dot[NT] = {};
    const auto block = [&](const float *x, const float *o) {
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        const vf y = load(x + n * VL);
        if (normalize) dot[n] += y * load(o + n * VL);
        store(to + n * VL, y * f);
      }
      to += 256;
    };
    if (f == 0.0f) {  // a missing row, or one of zeros
      for (int64_t b = 0; b < blocks; ++b) UNROLL(4) for (int n = 0; n < NT; ++n) store(to + b * 256 + n * VL, (vf){});
    } else {
      for (int64_t b = 0; b < full; ++b) block(gp + b * 16, op + b * 16);
      if (tail) {
        float grad[16], value[16];
        copy_tail(grad, gp + full * 16, tail);
        copy_tail(value, op + full * 16, normalize ? tail : 0);
        block(grad, value);
      }
    }
    UNROLL(4) for (int n = 0; n < NT; ++n) store(dots + i * 16 + n * VL, dot[n]);
  }
  vf total[NT] = {};
  if (normalize) row_sums(total, dots);
  UNROLL(4) for (int n = 0; n < NT; ++n) store(h + n * VL, -total[n] * load(inv + n * VL));
}

// Gradients of 16 tokens: row i begins at p + i * row, and its next 16 widths lie `block` further.
struct Grads {
  const float *p;
  int64_t row, block;
};

// dst rows = d times d phi / d x (from phi, natural layout); rows that are not valid get 0.
template <int KIND>
NOINLINE void store_grad(float *dst, int64_t stride, int64_t n, int64_t D, Grads d, const float *natural,
                         const float *valid, bool nontemporal) {
  const int64_t full = D / 16, tail = D % 16;
  for (int i = 0; i < n; ++i) {
    float *p = dst + i * stride;
    const float *from = d.p + i * d.row, *phi = natural + i * 16;
    const float there = valid[i];
    const auto slope = [&](int64_t b, int v) {
      const vf x = load(from + b * d.block + v * VL) * dphi<KIND>(load(phi + b * 256 + v * VL));
      return there == 0.0f ? (vf){} : x;
    };
    for (int64_t b = 0; b < full; ++b) UNROLL(4) for (int v = 0; v < NT; ++v) {
        const vf x = slope(b, v);
        nontemporal ? stream(p + b * 16 + v * VL, x) : store(p + b * 16 + v * VL, x);
      }
    if (tail) {
      float buf[16];
      UNROLL(4) for (int v = 0; v < NT; ++v) store(buf + v * VL, slope(full, v));
      memcpy(p + full * 16, buf, tail * sizeof(float));
    }
  }
}

typedef void (*StoreGrad)(float *, int64_t, int64_t, int64_t, Grads, const float *, const float *, bool);
const StoreGrad store_grad_by_kind[] = {store_grad<IDENTITY>, store_grad<ELU>, store_grad<RELU>,
                                        store_grad<RELU2>,    store_grad<EXP>, store_grad<IDENTITY>};

// ---- quadratic kernels  kappa(s) = c0 + c1 s + c2 s^2,  s = q . k
struct Quadratic {
  float c0, c1, c2;
  float w0, w1, w_diag, w_off;  // weights of the features: sqrt of the coefficient, times sqrt 2 off the diagonal
  int64_t D;

  inline __attribute__((always_inline)) vf kernel(vf s) const { return (s * c2 + c1) * s + c0; }
  inline __attribute__((always_inline)) vf slope(vf s) const { return s * (2.0f * c2) + c1; }
};

NOINLINE void build_features(float *f, const Quadratic &m, const float *xT, const float *valid) {
  if (m.c0 > 0.0f) {
    for (int n = 0; n < NT; ++n) store(f + n * VL, load(valid + n * VL) * m.w0);
    f += C;
  }
  if (m.c1 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i, f += C)
      for (int n = 0; n < NT; ++n) store(f + n * VL, load(xT + i * C + n * VL) * m.w1);
  if (m.c2 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) {
      vf xi[NT], off[NT];
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        xi[n] = load(xT + i * C + n * VL);
        off[n] = xi[n] * m.w_off;
        store(f + n * VL, xi[n] * (xi[n] * m.w_diag));
      }
      f += C;
      for (int64_t j = i + 1; j < m.D; ++j, f += C)
        UNROLL(4) for (int n = 0; n < NT; ++n) store(f + n * VL, off[n] * load(xT + j * C + n * VL));
    }
}

// dxT += the gradient of x from that of the features, df [F][16].
NOINLINE void features_vjp(float *dxT, const Quadratic &m, const float *xT, const float *df) {
  if (m.c0 > 0.0f) df += C;
  if (m.c1 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i, df += C)
      for (int n = 0; n < NT; ++n) {
        float *p = dxT + i * C + n * VL;
        store(p, load(p) + load(df + n * VL) * m.w1);
      }
  if (m.c2 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) {
      vf xi[NT], di[NT];
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        xi[n] = load(xT + i * C + n * VL) * m.w_off;
        di[n] = load(df + n * VL) * load(xT + i * C + n * VL) * (2.0f * m.w_diag / m.w_off);
      }
      df += C;
      for (int64_t j = i + 1; j < m.D; ++j, df += C) UNROLL(4) for (int n = 0; n < NT; ++n) {
          vf d = load(df + n * VL);
          float *p = dxT + j * C + n * VL;
          di[n] += d * load(xT + j * C + n * VL);
          store(p, load(p) + d * xi[n]);
        }
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        float *p = dxT + i * C + n * VL;
        store(p, load(p) + di[n] * m.w_off);
      }
    }
}

// z[f] += sum over 16 tokens of weight_t phi_f(x_t): through the 16 x 16 products of widths, so nothing is summed
// across a vector. natural: x; weighted: x with each row times weight_t (may be x itself); weight: [16] for the
// constant feature.
NOINLINE void add_feature_sums(float *z, const Quadratic &m, const float *natural, const float *weighted,
                               const float *weight) {
  if (m.c0 > 0.0f) {
    vf total = {};
    for (int n = 0; n < NT; ++n) total += load(weight + n * VL);
    *z++ += sum(total) * m.w0;
  }
  if (m.c1 > 0.0f) {
    for (int64_t b = 0; b * 16 < m.D; ++b) {
      float total[16] = {};
      for (int t = 0; t < C; ++t)
        for (int c = 0; c < 16; ++c) total[c] += weighted[b * 256 + t * 16 + c];
      for (int64_t c = 0; c < 16 && b * 16 + c < m.D; ++c) z[b * 16 + c] += total[c] * m.w1;
    }
    z += m.D;
  }
  if (m.c2 == 0.0f) return;
  for (int64_t bi = 0; bi * 16 < m.D; ++bi)
    for (int64_t bj = bi; bj * 16 < m.D; ++bj) {
      float gram[256];
      scores<1, 16>(gram, weighted + bi * 256, natural + bj * 256, 1);
      const int64_t j1 = m.D < bj * 16 + 16 ? m.D : bj * 16 + 16;
      for (int64_t i = bi * 16; i < bi * 16 + 16 && i < m.D; ++i) {
        float *row = z + i * m.D - i * (i + 1) / 2;  // row[j] is feature (i, j)
        const float *g = gram + (i - bi * 16) * 16 - bj * 16;
        int64_t j = bj * 16;
        if (bi == bj) {
          row[i] += g[i] * m.w_diag;
          j = i + 1;
        }
        for (; j < j1; ++j) row[j] += g[j] * m.w_off;
      }
    }
}

}  // namespace
