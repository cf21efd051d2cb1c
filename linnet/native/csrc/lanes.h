// A row of floats in vectors: whole ones, then the rest at its end, whose missing lanes read as 0 and are not written.
#pragma once
#include "simd.h"

#define MEMBER inline __attribute__((always_inline))

namespace {

struct Whole {
  MEMBER vf get(const float *p) const { return load(p); }
  MEMBER void put(float *p, vf x) const { store(p, x); }
  MEMBER vf present(vf x) const { return x; }
};

#if defined(__AVX512F__)
struct Rest {
  __mmask16 lanes;
  explicit Rest(int64_t n) : lanes((__mmask16)((1u << n) - 1)) {}
  MEMBER vf get(const float *p) const { return (vf)_mm512_maskz_loadu_ps(lanes, p); }
  MEMBER void put(float *p, vf x) const { _mm512_mask_storeu_ps(p, lanes, (__m512)x); }
  MEMBER vf present(vf x) const { return (vf)_mm512_maskz_mov_ps(lanes, (__m512)x); }
};
#elif defined(__AVX2__)
struct Rest {
  __m256i lanes;
  explicit Rest(int64_t n)
      : lanes(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}
  MEMBER vf get(const float *p) const { return (vf)_mm256_maskload_ps(p, lanes); }
  MEMBER void put(float *p, vf x) const { _mm256_maskstore_ps(p, lanes, (__m256)x); }
  MEMBER vf present(vf x) const { return (vf)_mm256_and_ps((__m256)x, _mm256_castsi256_ps(lanes)); }
};
#else
struct Rest {
  int64_t n;
  MEMBER vf get(const float *p) const {
    float buf[VL] = {};
    memcpy(buf, p, n * sizeof(float));
    return load(buf);
  }
  MEMBER void put(float *p, vf x) const {
    float buf[VL];
    store(buf, x);
    memcpy(p, buf, n * sizeof(float));
  }
  MEMBER vf present(vf x) const {
    float buf[VL] = {}, all[VL];
    store(all, x);
    memcpy(buf, all, n * sizeof(float));
    return load(buf);
  }
};
#endif

template <class F>
INLINE void along(int64_t n, F f) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) f(i, Whole{});
  if (i < n) f(i, Rest{n - i});
}

}  // namespace
