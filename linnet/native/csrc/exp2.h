// 2^t for any t, unlike exp_in_range of simd.h: 0 and infinity where float32 ends, exactly 1 at 0, NaN from NaN.
//
// e^x is exp2(x LOG2E). The rounding of the product adds 1e-7 |x| to the relative error: next to nothing where e^x is
// close to 1, and where x is large and negative the number itself is next to nothing.
#pragma once
#include "simd.h"

namespace {

constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f;
constexpr float LARGEST = 3.40282347e38f;

#if !defined(__AVX512F__)
// t between two numbers, NaN if it is one.
INLINE vf clamped(vf t, float low, float high) {
#if defined(__AVX2__)
  return (vf)_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), (__m256)t));
#elif defined(__SSE2__)
  return (vf)_mm_min_ps(_mm_set1_ps(high), _mm_max_ps(_mm_set1_ps(low), (__m128)t));
#else
  t = t < low ? splat(low) : t;
  return t > high ? splat(high) : t;
#endif
}
#endif

INLINE vf exp2_any(vf t) {
#if defined(__AVX512F__)
  const vf f = (vf)_mm512_reduce_ps((__m512)t, 0);  // t minus the nearest integer; 0 for infinities
  return (vf)_mm512_scalef_ps((__m512)exp2_fraction(f), (__m512)(t - f));
#else  // below 2^-126 some number below 2^-126, and 0 from 2^-127 on
  const float magic = 12582912.0f;
  t = clamped(t, -127.0f, 128.0f);
  const vf shifted = t + magic;
  return (vf)((vi)exp2_fraction(t - (shifted - magic)) + ((vi)shifted << 23));
#endif
}

// x, with every NaN the same one: exp2_any without AVX-512 would mix the lower bits of others into the exponent.
INLINE vf one_nan(vf x) { return x == x ? x : splat(__builtin_nanf("")); }

}  // namespace
