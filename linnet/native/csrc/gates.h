// What tokens decide by: decays, rates and gates of recurrent layers, VL numbers at a time, and norms of one head.
#pragma once
#include "nn.h"

namespace {

INLINE vf silu(vf x) { return x * sigmoid(x); }

// 2 sigmoid(2 x) - 1: right to 1e-7, not to the last digit of a tiny x.
INLINE vf tanh_(vf x) { return 2.0f * sigmoid(x + x) - 1.0f; }

// log(1 + e) for e in [0, 1] = 2 artanh(s), s = e / (2 + e) <= 1/3, by its series: relative error 2e-8.
INLINE vf log1p_unit(vf e) {
  const vf s = e / (e + 2.0f), z = s * s;
  vf p = splat(1.0f / 17.0f);
  p = p * z + 1.0f / 15.0f;
  p = p * z + 1.0f / 13.0f;
  p = p * z + 1.0f / 11.0f;
  p = p * z + 1.0f / 9.0f;
  p = p * z + 1.0f / 7.0f;
  p = p * z + 1.0f / 5.0f;
  p = p * z + 1.0f / 3.0f;
  p = p * z + 1.0f;
  return 2.0f * s * p;
}

// log(1 + e^x)
INLINE vf softplus(vf x) {
  const vf size = (vf)((vi)x & 0x7fffffff);
  return max_(x, 0.0f) + log1p_unit(exp_in_range<true>(-min_(size, 87.0f)));  // a NaN travels in the first term
}

// e^x for x <= 0, where less than e^-87 is as good as nothing.
INLINE vf decay_factor(vf x) { return exp_in_range<true>(max_(x, -87.0f)); }

// y = factor x / sqrt(|x|^2 + eps)
INLINE void unit_length(float *y, const float *x, int64_t D, float factor, double eps) {
  const float squares = total(D, [&](int64_t i, auto v) { return v.get(x + i) * v.get(x + i); });
  const float by = factor / sqrtf(squares + (float)eps);
  along(D, [&](int64_t i, auto v) { v.put(y + i, v.get(x + i) * by); });
}

// The norm of one head, in place. kind: LINNET_NO_NORM, ...
INLINE void head_norm(int64_t kind, float *y, const float *weight, const float *bias, int64_t V, double eps) {
  if (kind == LINNET_LAYER_NORM) normalize<false>(y, y, weight, bias, V, eps, nullptr);
  if (kind == LINNET_RMS_NORM) normalize<true>(y, y, weight, bias, V, eps, nullptr);
}

}  // namespace
