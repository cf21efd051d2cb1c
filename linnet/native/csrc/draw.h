// Random regression problems as sums: what a linear transformer uses of n noisy examples, drawn without the examples.
//
// [X z] with n rows of E = d + 1 independent normals has Gram matrix A Aᵀ with A lower trapezoidal, chi(n - k) on its
// diagonal and normals below (Bartlett 1933): E² / 2 draws in place of n E. With y = X w + sigma z
//     S = [[Sigma, alpha], [alphaᵀ, lambda]],  alpha = Sigma w + sigma b,  lambda = <w, alpha + sigma b> + sigma² c
// where A Aᵀ = [[Sigma, b], [bᵀ, c]]. One lane is one sequence with its own random stream, given by seed and index, so
// the numbers depend neither on the width of the instruction set nor on the threads.
#pragma once
#include "simd.h"

#define ALWAYS inline __attribute__((always_inline))

namespace {

typedef uint32_t vu __attribute__((vector_size(VL * 4), may_alias));

INLINE vf sqrt_(vf x) {
#if defined(__AVX512F__)
  return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (vf)_mm256_sqrt_ps((__m256)x);
#else
  vf out;
  for (int i = 0; i < VL; ++i) out[i] = __builtin_sqrtf(x[i]);
  return out;
#endif
}

// ln x for normal positive x, relative error 1e-7 away from 1: exponent bits and a polynomial on [sqrt 1/2, sqrt 2].
INLINE vf log_(vf x) {
  const vi bits = (vi)x - 0x3f3504f3;  // the bits of sqrt 1/2
  const vi e = bits >> 23;
  const vf m = (vf)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
  vf p = splat(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const vf square = m * m;
  const vf exponent = __builtin_convertvector(e, vf);
  return exponent * 0.693147180559945f + (p * m * square - 0.5f * square + m);
}

// xoshiro128++ (Blackman and Vigna), one generator in each lane.
struct Random {
  vu s[4];

  // Streams seed : first, first + 1, ... in the lanes.
  void start(uint64_t seed, uint64_t first) {
    for (int i = 0; i < VL; ++i) {
      uint64_t x = seed * 0x9e3779b97f4a7c15ull + (first + i) * 0xd1342543de82ef95ull;
      for (int word = 0; word < 4; ++word) {  // splitmix64
        x += 0x9e3779b97f4a7c15ull;
        uint64_t z = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        s[word][i] = (uint32_t)((z ^ (z >> 31)) >> 16);
      }
      s[0][i] |= 1;  // never all zero
    }
  }

  static ALWAYS vu turn(vu x, int k) { return (x << k) | (x >> (32 - k)); }

  ALWAYS vu bits() {
    const vu out = turn(s[0] + s[3], 7) + s[0], t = s[1] << 9;
    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
    s[3] = turn(s[3], 11);
    return out;
  }

  // In (0, 1): 2^24 values.
  ALWAYS vf uniform() { return (__builtin_convertvector((vi)(bits() >> 8), vf) + 0.5f) * 5.9604645e-8f; }

  // Two independent normals (Box and Muller): an angle within an eighth of a turn, then two bits for which eighth.
  ALWAYS void normals(vf *a, vf *b) {
    const vf radius = sqrt_(log_(uniform()) * -2.0f);
    const vu word = bits();
    const vf angle = (__builtin_convertvector((vi)(word >> 8), vf) * 5.9604645e-8f - 0.49999997f) * 1.57079633f;
    const vf z = angle * angle;
    const vf sine = angle + angle * z * ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f);
    vf cosine = ((z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z;
    cosine = cosine - 0.5f * z + 1.0f;
    const vi swap = (vi)(word & 1) == 1, sign = (vi)((word & 2) << 30);
    const vf c = (vf)((vi)cosine ^ sign);
    *a = radius * (vf)(((vi)c & ~swap) | ((vi)sine & swap));
    *b = radius * (vf)(((vi)sine & ~swap) | ((vi)c & swap));
  }

  ALWAYS void normals(vf *out, int64_t count) {
    vf spare;
    int64_t i = 0;
    for (; i + 1 < count; i += 2) normals(out + i, out + i + 1);
    if (i < count) normals(out + i, &spare);
  }

  // The root of a chi-square with k degrees of freedom: exponentials in pairs of degrees, eight to a logarithm.
  ALWAYS vf chi(int64_t k) {
    vf square = {};
    for (int64_t pairs = k / 2; pairs > 0; pairs -= 8) {
      vf product = uniform();
      for (int64_t i = 1; i < (pairs < 8 ? pairs : 8); ++i) product *= uniform();
      square += log_(product) * -2.0f;
    }
    if (k % 2) {
      vf x, spare;
      normals(&x, &spare);
      square += x * x;
    }
    return sqrt_(square);
  }
};

// sigma of every lane: uniform on (0, values[0]) when count is 0, else one of the values.
INLINE vf draw_sigma(Random &random, const double *values, int64_t count) {
  const vf u = random.uniform();
  if (count == 0) return u * (float)values[0];
  vf out;
  for (int i = 0; i < VL; ++i) {
    const int64_t which = (int64_t)(u[i] * (float)count);
    out[i] = (float)values[which < count ? which : count - 1];
  }
  return out;
}

// s [E*E] of a fresh sequence in every lane with weights w [d], noise sigma and inputs `wide` times as large; scratch
// a [E*E].
NOINLINE void draw_sums(Random &stream, vf *s, vf *a, const vf *w, vf sigma, int64_t n, int64_t E, float wide) {
  const int64_t d = E - 1, rank = n < E ? n : E;
  Random random = stream;  // in registers
  for (int64_t k = 0; k < rank; ++k) {
    a[k * E + k] = random.chi(n - k);
    random.normals(a + k * E + k + 1, E - 1 - k);  // column k of A, stored as a row
    for (int64_t j = k; j < d; ++j) a[k * E + j] *= wide;
  }
  for (int64_t i = 0; i < E; ++i)
    for (int64_t j = i; j < E; ++j) {
      vf sum = {};
      const int64_t top = i < rank - 1 ? i : rank - 1;
      for (int64_t k = 0; k <= top; ++k) sum += a[k * E + i] * a[k * E + j];
      s[i * E + j] = s[j * E + i] = sum;
    }
  stream = random;
  vf lambda = s[d * E + d] * sigma * sigma;
  for (int64_t i = 0; i < d; ++i) {
    const vf noise = sigma * s[i * E + d];
    vf alpha = noise;
    for (int64_t j = 0; j < d; ++j) alpha += s[i * E + j] * w[j];
    lambda += w[i] * (alpha + noise);
    s[i * E + d] = s[d * E + i] = alpha;
  }
  s[d * E + d] = lambda;
}

}  // namespace
