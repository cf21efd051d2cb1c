// One vector type for every instruction set: VL floats, plain operators, and the few things operators cannot say.
// Fused multiply-add comes from -ffp-contract=fast; nothing here may be compiled into a shared inline function,
// so all of it lives in an unnamed namespace, one copy per instruction set.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define PRAGMA_(x) _Pragma(#x)
#if defined(__clang__)
#define UNROLL(n) PRAGMA_(clang loop unroll_count(n))
#else
#define UNROLL(n) PRAGMA_(GCC unroll n)
#endif

namespace {

#if defined(__AVX512F__)
constexpr int VL = 16;
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif
constexpr int C = 16;       // tokens per chunk: the fastest on every instruction set tried, see docs/decisions
constexpr int NT = C / VL;  // vectors per row of 16

typedef float vf __attribute__((vector_size(VL * 4), may_alias));
typedef float vfu __attribute__((vector_size(VL * 4), may_alias, aligned(4)));
typedef int32_t vi __attribute__((vector_size(VL * 4), may_alias));

INLINE vf load(const float *p) { return *(const vfu *)p; }
INLINE void store(float *p, vf x) { *(vfu *)p = x; }
INLINE vf splat(float x) { return x - (vf){}; }

// A store that skips the cache: for outputs too large to be read back from it. p is VL*4-byte aligned.
INLINE void stream(float *p, vf x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)x);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, (__m256)x);
#else
  store(p, x);
#endif
}

INLINE void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

INLINE float sum(vf x) {
  float buf[VL], total = 0;
  store(buf, x);
  UNROLL(16) for (int i = 0; i < VL; ++i) total += buf[i];
  return total;
}

// a b + c rounded once, where accuracy rests on it; elsewhere the compiler contracts as it likes.
INLINE vf fma_(vf a, float b, vf c) {
#if defined(__AVX512F__)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)splat(b), (__m512)c);
#elif defined(__AVX2__)
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)splat(b), (__m256)c);
#else
  return a * b + c;
#endif
}

// Do the same to each of G vectors, operation by operation: one vector alone is a chain of fourteen dependent operations,
// and a processor holds too few chains at a time to keep its units busy.
#define EACH(G) UNROLL(8) for (int g = 0; g < G; ++g)

// 2^f for f in [-1/2, 1/2] by a minimax polynomial, relative error 1e-7; exactly 1 at 0.
template <int G>
INLINE void exp2_fraction(vf (&f)[G]) {
  vf p[G];
  EACH(G) p[g] = splat(0.00132647f);
  EACH(G) p[g] = p[g] * f[g] + 0.00967151f;
  EACH(G) p[g] = p[g] * f[g] + 0.05550734f;
  EACH(G) p[g] = p[g] * f[g] + 0.24022242f;
  EACH(G) p[g] = p[g] * f[g] + 0.69314698f;
  EACH(G) f[g] = p[g] * f[g] + 1.0f;
}

INLINE vf exp2_fraction(vf f) {
  vf one[1] = {f};
  exp2_fraction(one);
  return one[0];
}

// e^x for x in [-87, 88]: 2^n by the exponent bits, 2^f as above.
// The rounding of log2(e) adds 1.3e-8 |x| to it, unless EXACT; elu+1 can do without, its large |x| are tiny numbers.
template <bool EXACT, int G>
INLINE void exp_in_range(vf (&x)[G]) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  vf shifted[G], n[G], f[G];
  EACH(G) shifted[g] = x[g] * 1.44269504f + magic;
  EACH(G) n[g] = shifted[g] - magic;
#if defined(__FMA__) || defined(__aarch64__)
  EACH(G) f[g] = fma_(x[g], 1.44269504f, -n[g]);
  if (EXACT) EACH(G) f[g] = x[g] * 1.925963e-8f + f[g];
#else  // without a fused multiply-add the product above would lose the digits that matter: ln 2 in two parts instead
  EACH(G) f[g] = ((x[g] - n[g] * 0.693359375f) + n[g] * 2.12194440e-4f) * 1.44269504f;
#endif
  exp2_fraction(f);
  EACH(G) x[g] = (vf)((vi)f[g] + ((vi)shifted[g] << 23));
}

template <bool EXACT>
INLINE vf exp_in_range(vf x) {
  vf one[1] = {x};
  exp_in_range<EXACT>(one);
  return one[0];
}

// The larger of a and b, a when a is NaN; the smaller, b when a is NaN: what one x86 instruction does, in this order.
INLINE vf max_(vf a, float b) {
#if defined(__AVX512F__)
  return (vf)_mm512_max_ps((__m512)splat(b), (__m512)a);
#elif defined(__AVX2__)
  return (vf)_mm256_max_ps((__m256)splat(b), (__m256)a);
#else
  return b > a ? splat(b) : a;
#endif
}

INLINE vf min_(vf a, float b) {
#if defined(__AVX512F__)
  return (vf)_mm512_min_ps((__m512)a, (__m512)splat(b));
#elif defined(__AVX2__)
  return (vf)_mm256_min_ps((__m256)a, (__m256)splat(b));
#else
  return a < b ? a : splat(b);
#endif
}

enum Kind { IDENTITY = 0, ELU = 1, RELU = 2, RELU2 = 3, EXP = 4, QUADRATIC = 5 };

template <int KIND, int G>
INLINE void phi_each(vf (&x)[G]) {
  if (KIND == ELU) {
    vf low[G], e[G];
    EACH(G) low[g] = max_(x[g], -87.0f);
    EACH(G) e[g] = min_(low[g], 0.0f);
    EACH(G) low[g] = low[g] - e[g];
    exp_in_range<false>(e);
    EACH(G) x[g] = e[g] + low[g];  // a NaN travels in the second term
  }
  if (KIND == RELU) EACH(G) x[g] = max_(x[g], 0.0f);
  if (KIND == RELU2) EACH(G) {
      const vf r = max_(x[g], 0.0f);
      x[g] = r * r;
    }
  if (KIND == EXP) {
    vf e[G];
    EACH(G) e[g] = min_(max_(x[g], -87.0f), 88.7228f);
    exp_in_range<true>(e);
    EACH(G) {
      e[g] = x[g] > 88.7228f ? splat(__builtin_inff()) : e[g];
      x[g] = x[g] == x[g] ? e[g] : x[g];
    }
  }
}

template <int KIND>
INLINE vf phi(vf x) {
  vf one[1] = {x};
  phi_each<KIND>(one);
  return one[0];
}

// d phi / d x from phi alone: no second exponential.
template <int KIND>
INLINE vf dphi(vf p) {
  if (KIND == ELU) return min_(p, 1.0f);  // a NaN gradient comes from elsewhere
  if (KIND == RELU) return p > 0.0f ? splat(1.0f) : (vf){};
  if (KIND == RELU2) {
    float buf[VL];
    store(buf, p);
    UNROLL(16) for (int i = 0; i < VL; ++i) buf[i] = 2.0f * __builtin_sqrtf(buf[i]);
    return load(buf);
  }
  if (KIND == EXP) return p;
  return splat(1.0f);
}

// dst[c][0..15] = src[0..15][c] for c = 0..15; rows of src lie `stride` floats apart, dst is dense.
// Quarter rows are gathered straight from memory into 128-bit lanes, so half of the shuffles are loads.
INLINE void transpose16(float *dst, const float *src, int64_t stride) {
#if defined(__AVX512F__)
  UNROLL(4) for (int g = 0; g < 4; ++g) {
    __m512 r[4];
    UNROLL(4) for (int a = 0; a < 4; ++a) {
      const float *p = src + a * stride + 4 * g;
      __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(p));
      x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 4 * stride), 1);
      x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 8 * stride), 2);
      r[a] = _mm512_insertf32x4(x, _mm_loadu_ps(p + 12 * stride), 3);
    }
    __m512d t0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1])),
            t1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
    __m512d t2 = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3])),
            t3 = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    store(dst + (4 * g + 0) * 16, (vf)_mm512_unpacklo_pd(t0, t2));
    store(dst + (4 * g + 1) * 16, (vf)_mm512_unpackhi_pd(t0, t2));
    store(dst + (4 * g + 2) * 16, (vf)_mm512_unpacklo_pd(t1, t3));
    store(dst + (4 * g + 3) * 16, (vf)_mm512_unpackhi_pd(t1, t3));
  }
#elif defined(__AVX2__)
  UNROLL(2) for (int half = 0; half < 2; ++half) UNROLL(4) for (int g = 0; g < 4; ++g) {
    __m256 r[4];
    UNROLL(4) for (int a = 0; a < 4; ++a) {
      const float *p = src + (8 * half + a) * stride + 4 * g;
      r[a] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * stride), 1);
    }
    __m256d t0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])),
            t1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
    __m256d t2 = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3])),
            t3 = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
    float *d = dst + 8 * half;
    store(d + (4 * g + 0) * 16, (vf)_mm256_unpacklo_pd(t0, t2));
    store(d + (4 * g + 1) * 16, (vf)_mm256_unpackhi_pd(t0, t2));
    store(d + (4 * g + 2) * 16, (vf)_mm256_unpacklo_pd(t1, t3));
    store(d + (4 * g + 3) * 16, (vf)_mm256_unpackhi_pd(t1, t3));
  }
#else
  for (int c = 0; c < 16; ++c)
    for (int i = 0; i < 16; ++i) dst[c * 16 + i] = src[i * stride + c];
#endif
}

// total[i] = the sum of row i of 16 x 16: rows become lanes, and four short chains of additions run side by side.
INLINE void row_sums(vf (&total)[NT], const float *rows) {
  float columns[256];
  transpose16(columns, rows, 16);
  UNROLL(4) for (int n = 0; n < NT; ++n) {
    vf part[4] = {};
    UNROLL(16) for (int i = 0; i < 16; ++i) part[i % 4] += load(columns + i * 16 + n * VL);
    total[n] = (part[0] + part[1]) + (part[2] + part[3]);
  }
}

}  // namespace
