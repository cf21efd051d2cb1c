// Packed weights times a few vectors: y = W x + bias for 1 to some hundred rows x, the work of decoding.
//
//   weights lie in panels of 32 outputs, in the order they are read (linnet/native/matmul.py packs them):
//     float32   [panel][k][32]
//     bfloat16  [panel][k][16] words, output j in the low half and output j + 16 in the high half of word j
//     int8      [panel][k / 4][32][4]; weight = scale[output] * integer, activation = scale[row] * integer
//
// Every output is one sum over k = 0, 1, 2 ... with fused multiply-adds (int8: an exact integer), whatever is computed
// together with it. So neither the batch nor the split into tiles, panels and threads changes a bit of it.
#pragma once
#include "linnet.h"
#include "nn.h"
#include "simd.h"

namespace {

constexpr int PANEL = 32;
enum Weights { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

typedef int32_t viu __attribute__((vector_size(VL * 4), may_alias, aligned(4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4), may_alias));
typedef int16_t vs __attribute__((vector_size(VL * 4), may_alias));
typedef uint8_t vb __attribute__((vector_size(VL), may_alias, aligned(1)));

INLINE vi load_words(const void *p) { return *(const viu *)p; }

INLINE vi splat_word(const void *p) {
  int32_t x;
  memcpy(&x, p, 4);
  return x - (vi){};
}

// x, rounded here: the product it may be is not fused into a sum.
INLINE vf rounded(vf x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#else
  asm("" : "+m"(x));
#endif
  return x;
}

// ---- int8 dot products, four k at a time in every 32-bit lane -------------------------------------------------------

// Newer processors have one instruction for it: unsigned bytes times signed bytes. It is detected at run time and
// written as inline assembly, so that nothing is compiled for a wider instruction set than the rest of this file.
#if defined(__AVX512F__)
#define BYTE_DOTS "avx512vnni"
#define BYTE_DOT "vpdpbusd"
#elif defined(__AVX2__) && __GNUC__ >= 12 && !defined(__clang__)
#define BYTE_DOTS "avxvnni"
#define BYTE_DOT "%{vex%} vpdpbusd"
#endif

// With it the activations are stored as bytes, plus 128.
INLINE bool byte_dots() {
#if defined(BYTE_DOTS)
  return __builtin_cpu_supports(BYTE_DOTS);
#else
  return false;
#endif
}

INLINE vi byte_dot(vi c, vi x, vi w) {
#if defined(BYTE_DOTS)
  asm(BYTE_DOT " %2, %1, %0" : "+v"(c) : "v"(x), "v"(w));
#else
  (void)x, (void)w;
#endif
  return c;
}

// a.low b.low + a.high b.high of the 16-bit halves of every lane.
INLINE vi half_dot(vi a, vi b) {
#if defined(__AVX512F__)
  return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
  return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

// Bytes of four quantised activations: four bytes, or the 16-bit pairs (0, 2) and (1, 3).
INLINE int64_t four_bytes() { return byte_dots() ? 4 : 8; }

int64_t quantized_bytes(int64_t n) { return (n + 63) / 64 * 16 * four_bytes(); }

// max|x|, infinity or NaN when there is one: as integers the sizes of floats are in that order.
INLINE float largest(const float *x, int64_t n) {
  vi most = {};
  along(n, [&](int64_t i, auto v) {
    const vi size = (vi)v.get(x + i) & 0x7fffffff;
    most = size > most ? size : most;
  });
  int32_t sizes[VL], top = 0;
  memcpy(sizes, &most, sizeof sizes);
  for (int i = 0; i < VL; ++i) top = sizes[i] > top ? sizes[i] : top;
  float max;
  memcpy(&max, &top, sizeof max);
  return max;
}

INLINE void put_pairs(int16_t *to, vi q) {
  int32_t s[VL];
  memcpy(s, &q, sizeof s);
  for (int i = 0; i < VL; i += 4)
    for (int j = 0; j < 4; ++j) to[i + j] = (int16_t)s[i + (j % 2 * 2 + j / 2)];
}

// q = round(x / scale), scale = max|x| / 127. A row of zeros, or next to zero, has scale 0; one with an infinity or a
// NaN in it has scale NaN and so gives NaN everywhere.
void quantize_row(const float *x, int64_t n, uint8_t *q, float *scale) {
  const float max = largest(x, n);
  const bool finite = max < __builtin_inff(), zero = max < 1e-30f, bytes = byte_dots();
  *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
  const float inverse = zero ? 0.0f : 127.0f / max;
  along(n, [&](int64_t i, auto v) {
    const vf scaled = rounded((finite ? v.get(x + i) : (vf){}) * inverse);
    const vi near = (vi)(scaled + 12582912.0f) - 0x4b400000;  // 1.5 * 2^23: adding it rounds to the nearest integer
    if (bytes)
      *(vb *)(q + i) = __builtin_convertvector((vu)near + 128, vb);
    else
      put_pairs((int16_t *)q + i, near);
  });
}

// ---- tiles: R rows times NV vectors of each of P panels, all sums in registers --------------------------------------

struct Product {
  const linnet_matrix *m;
  const float *x;
  int64_t x_stride;  // floats
  const uint8_t *q;
  int64_t q_stride;  // bytes
  const float *q_scale;
  float *y;
  int64_t y_stride;
  const char *ahead;   // weights needed soon: a tile fetches as it goes, this much at every step
  int64_t ahead_step;  // bytes
};

template <int64_t BYTES>
INLINE void fetch(const char *p) {
  UNROLL(2) for (int64_t i = 0; i < BYTES; i += 64) __builtin_prefetch(p + i, 0, 3);
}

// Where vector n of group g of a panel begins. The two halves of a bfloat16 word are vectors 16 outputs apart.
template <int KIND, int NV>
INLINE int first_output(int g, int n) {
  return KIND == BFLOAT16 ? (g * NV + n) / 2 * VL + n % 2 * 16 : (g * NV + n) * VL;
}

template <int KIND, int NV>
INLINE void get_weights(vf (&w)[NV], const char *p, int g) {  // p: this panel at this k
  if (KIND == FLOAT32) {
    UNROLL(8) for (int n = 0; n < NV; ++n) w[n] = load((const float *)p + first_output<KIND, NV>(g, n));
  } else {
    UNROLL(8) for (int n = 0; n < NV; n += 2) {
      const char *at = p + first_output<KIND, NV>(g, n) * 4;
      w[n] = (vf)(load_words(at) << 16);
#if defined(__AVX512F__)
      w[n + 1] = (vf)_mm512_maskz_loadu_epi16(0xaaaaaaaa, at);
#else
      w[n + 1] = (vf)(load_words(at) & (int32_t)0xffff0000);
#endif
    }
  }
}

// The finished sums of a tile to y, through a buffer where the matrix ends inside the panel.
template <int KIND, int R, int NV, int P>
INLINE void put(const Product &a, int64_t row, int64_t panel, int g, vf (&c)[P][R][NV]) {
  UNROLL(4) for (int p = 0; p < P; ++p) {
    const int64_t o = (panel + p) * PANEL, width = a.m->out - o;
    const bool whole = width >= PANEL;
    float buf[R][PANEL], *y = a.y + row * a.y_stride + o, *to = whole ? y : buf[0];
    const int64_t stride = whole ? a.y_stride : PANEL;
    UNROLL(8) for (int n = 0; n < NV; ++n) {
      const int j = first_output<KIND, NV>(g, n);
      const vf bias = a.m->bias ? load(a.m->bias + o + j) : (vf){};
      UNROLL(16) for (int r = 0; r < R; ++r) store(to + r * stride + j, a.m->bias ? c[p][r][n] + bias : c[p][r][n]);
    }
    if (!whole)
      for (int r = 0; r < R; ++r)
        for (int n = 0; n < NV; ++n) {
          const int j = first_output<KIND, NV>(g, n);
          if (j < width) memcpy(y + r * a.y_stride + j, buf[r] + j, (width - j < VL ? width - j : VL) * sizeof(float));
        }
  }
}

// Rows of x by threes: an address is one of a few pointers plus nothing, one or two strides.
template <int KIND, int R, int NV, int P>
NOINLINE void float_tile(const Product *a, int64_t row, int64_t panel, int g) {
  constexpr int64_t BYTES = KIND == FLOAT32 ? 4 * PANEL : 2 * PANEL;  // of a panel at one k
  const int64_t K = a->m->in, stride = a->x_stride, panel_bytes = BYTES * K;
  const char *w = (const char *)a->m->w + panel * panel_bytes;
  const float *x[(R + 2) / 3];
  UNROLL(8) for (int i = 0; i < (R + 2) / 3; ++i) x[i] = a->x + (row + 3 * i) * stride;
  vf c[P][R][NV] = {};
  const char *ahead = a->ahead;
  const auto mac = [&](int64_t k) __attribute__((always_inline)) {
    if (P == 1 && R > 2) fetch<BYTES>(ahead), ahead += a->ahead_step;
    UNROLL(4) for (int p = 0; p < P; ++p) {
      vf wv[NV];
      get_weights<KIND, NV>(wv, w + p * panel_bytes + k * BYTES, g);
      UNROLL(16) for (int r = 0; r < R; ++r) {
        const float xr = x[r / 3][r % 3 * stride + k];
        UNROLL(8) for (int n = 0; n < NV; ++n) c[p][r][n] = fma_(wv[n], xr, c[p][r][n]);
      }
    }
  };
  if (R <= 2) {
    UNROLL(4) for (int64_t k = 0; k < K; ++k) mac(k);
  } else {  // unrolled, gcc no longer keeps a large tile in registers
    UNROLL(1) for (int64_t k = 0; k < K; ++k) mac(k);
  }
  put<KIND>(*a, row, panel, g, c);
}

template <bool DOTS, int R, int NV, int P>
NOINLINE void int8_tile(const Product *a, int64_t row, int64_t panel, int g) {
  constexpr int64_t FOUR = DOTS ? 4 : 8, BYTES = 4 * PANEL;
  const int64_t K4 = (a->m->in + 3) / 4, stride = a->q_stride, panel_bytes = BYTES * K4;
  const char *w = (const char *)a->m->w + panel * panel_bytes + g * NV * VL * 4;
  const uint8_t *q[(R + 2) / 3];
  UNROLL(8) for (int i = 0; i < (R + 2) / 3; ++i) q[i] = a->q + (row + 3 * i) * stride;
  vi c[P][R][NV] = {};
  const char *ahead = a->ahead;
  const auto mac = [&](int64_t k) __attribute__((always_inline)) {
    if (P == 1 && R > 2) fetch<BYTES>(ahead), ahead += a->ahead_step;
    UNROLL(4) for (int p = 0; p < P; ++p) {
      vi wv[NV], even[NV], odd[NV];
      UNROLL(8) for (int n = 0; n < NV; ++n) {
        wv[n] = load_words(w + k * BYTES + p * panel_bytes + n * VL * 4);
        if (!DOTS) even[n] = (vi)(((vs)wv[n] << 8) >> 8), odd[n] = (vi)((vs)wv[n] >> 8);
      }
      UNROLL(16) for (int r = 0; r < R; ++r) {
        const uint8_t *at = q[r / 3] + r % 3 * stride + k * FOUR;
        const vi first = splat_word(at), second = DOTS ? first : splat_word(at + 4);
        UNROLL(8) for (int n = 0; n < NV; ++n) {
          if (DOTS)
            c[p][r][n] = byte_dot(c[p][r][n], first, wv[n]);
          else
            c[p][r][n] += half_dot(even[n], first) + half_dot(odd[n], second);
        }
      }
    }
  };
  if (R <= 2) {
    UNROLL(2) for (int64_t k = 0; k < K4; ++k) mac(k);
  } else {
    UNROLL(1) for (int64_t k = 0; k < K4; ++k) mac(k);
  }
  vf y[P][R][NV];
  UNROLL(4) for (int p = 0; p < P; ++p) UNROLL(8) for (int n = 0; n < NV; ++n) {
    const int64_t o = (panel + p) * PANEL + first_output<INT8, NV>(g, n);
    const vu extra = DOTS ? (vu)load_words(a->m->sums + o) << 7 : (vu){};
    const vf scale = load(a->m->scale + o);
    UNROLL(16) for (int r = 0; r < R; ++r) {
      const vi total = (vi)((vu)c[p][r][n] - extra);
      y[p][r][n] = rounded(__builtin_convertvector(total, vf) * (scale * a->q_scale[row + r]));
    }
  }
  put<INT8>(*a, row, panel, g, y);
}

// ---- a product split into tiles -------------------------------------------------------------------------------------

template <int KIND, bool DOTS>
struct Cut {  // rows of a tile at most, and how many vectors and panels a tile of R rows takes
#if defined(__AVX512F__)
  static constexpr int MOST = KIND == INT8 && !DOTS ? 10 : 14;
  static constexpr int vectors(int) { return 2; }
  static constexpr int panels(int R) { return R == 1 ? 4 : R <= (DOTS || KIND != INT8 ? 5 : 3) ? 2 : 1; }
#elif defined(__AVX2__)
  static constexpr int MOST = KIND == INT8 && !DOTS ? 4 : 6;
  static constexpr int vectors(int R) { return R <= (KIND == FLOAT32 ? 3 : KIND == BFLOAT16 || DOTS ? 2 : 1) ? 4 : 2; }
  static constexpr int panels(int R) { return R == 1 ? 2 : 1; }
#else
  static constexpr int MOST = 2;
  static constexpr int vectors(int R) { return R == 1 ? 8 : KIND == INT8 ? 2 : 4; }
  static constexpr int panels(int) { return 1; }
#endif
};

// Tiles of one panel: this one and how many. Each fetches its share of the next panel, a tile alone what it reads soon.
struct Share {
  int64_t part, parts;
};

template <int KIND, bool DOTS, int R, int P>
INLINE void one_tile(Product &a, Share s, int64_t row, int64_t panel) {
  constexpr int NV = Cut<KIND, DOTS>::vectors(R), GROUPS = PANEL / VL / NV;
  constexpr int64_t BYTES = KIND == BFLOAT16 ? 2 * PANEL : 4 * PANEL, SOON = 4096;
  const int64_t steps = KIND == INT8 ? (a.m->in + 3) / 4 : a.m->in, tiles = s.parts * GROUPS;
  const char *w = (const char *)a.m->w + panel * steps * BYTES;
  a.ahead_step = BYTES / tiles;
  for (int g = 0; g < GROUPS; ++g) {
    a.ahead = tiles == 1 ? w + SOON : w + steps * (BYTES + (s.part * GROUPS + g) * a.ahead_step);
    if constexpr (KIND == INT8)
      int8_tile<DOTS, R, NV, P>(&a, row, panel, g);
    else
      float_tile<KIND, R, NV, P>(&a, row, panel, g);
  }
}

// Call with R = the number of rows, at most MOST.
template <int KIND, bool DOTS, int R>
INLINE void tiles(Product &a, Share s, int64_t rows, int64_t row, int64_t p0, int64_t p1) {
  if constexpr (R > 1) {
    if (rows < R) return tiles<KIND, DOTS, R - 1>(a, s, rows, row, p0, p1);
  }
  constexpr int P = Cut<KIND, DOTS>::panels(R);
  for (; p0 + P <= p1; p0 += P) one_tile<KIND, DOTS, R, P>(a, s, row, p0);
  if constexpr (P > 2) {
    for (; p0 + 2 <= p1; p0 += 2) one_tile<KIND, DOTS, R, 2>(a, s, row, p0);
  }
  for (; p0 < p1; ++p0) one_tile<KIND, DOTS, R, 1>(a, s, row, p0);
}

// Rows are shared out evenly among as few tiles as hold them, and every panel meets all rows while it is in the cache.
template <int KIND, bool DOTS>
void product(Product &a, int64_t B, int64_t p0, int64_t p1) {
  constexpr int MOST = Cut<KIND, DOTS>::MOST;
  const int64_t parts = (B + MOST - 1) / MOST, step = parts > 1 ? 1 : p1 - p0;
  for (int64_t p = p0; p < p1; p += step)
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t row = B * i / parts, end = B * (i + 1) / parts;
      tiles<KIND, DOTS, MOST>(a, {i, parts}, end - row, row, p, p + step);
    }
}

// y[b][o] = sum_k W[o][k] x[b][k] + bias[o] for the outputs of panels [p0, p1) and B rows; strides in floats, of q in
// bytes. int8 takes the rows from quantize_row and leaves x alone; the others take x.
void matmul(const linnet_matrix *m, const float *x, int64_t x_stride, const uint8_t *q, int64_t q_stride,
            const float *q_scale, float *y, int64_t y_stride, int64_t B, int64_t p0, int64_t p1) {
  Product a = {m, x, x_stride, q, q_stride, q_scale, y, y_stride, nullptr, 0};
  if (p0 >= p1) return;
  if (m->kind == FLOAT32) return product<FLOAT32, false>(a, B, p0, p1);
  if (m->kind == BFLOAT16) return product<BFLOAT16, false>(a, B, p0, p1);
#if defined(BYTE_DOTS)
  if (byte_dots()) return product<INT8, true>(a, B, p0, p1);
#endif
  product<INT8, false>(a, B, p0, p1);
}

// ---- small matrices -------------------------------------------------------------------------------------------------

// The panel of 32 outputs at y for one row x, with the sum over k in four parts: a single one would wait for every
// multiply-add of a matrix that is too small to keep many sums going.
template <int KIND>
INLINE void small_panel(const linnet_matrix *m, const float *x, float *y, int64_t panel) {
  constexpr int NV = PANEL / VL, PARTS = VL == 16 ? 4 : VL == 8 ? 2 : 1;
  constexpr int64_t BYTES = KIND == FLOAT32 ? 4 * PANEL : 2 * PANEL;
  const int64_t K = m->in, width = m->out - panel * PANEL;
  const char *w = (const char *)m->w + panel * BYTES * K;
  vf c[PARTS][NV] = {};
  const auto mac = [&](int64_t k, int part) __attribute__((always_inline)) {
    vf wv[NV];
    get_weights<KIND, NV>(wv, w + k * BYTES, 0);
    UNROLL(8) for (int n = 0; n < NV; ++n) c[part][n] = fma_(wv[n], x[k], c[part][n]);
  };
  int64_t k = 0;
  for (; k + PARTS <= K; k += PARTS) UNROLL(4) for (int part = 0; part < PARTS; ++part) mac(k + part, part);
  for (; k < K; ++k) mac(k, 0);
  float buf[PANEL], *to = width < PANEL ? buf : y;
  UNROLL(8) for (int n = 0; n < NV; ++n) {
    for (int part = 1; part < PARTS; ++part) c[0][n] += c[part][n];
    const int j = first_output<KIND, NV>(0, n);
    store(to + j, m->bias ? c[0][n] + load(m->bias + panel * PANEL + j) : c[0][n]);
  }
  if (width < PANEL) memcpy(y, buf, width * sizeof(float));
}

// y = W x + bias for the outputs of panels [p0, p1) and one row; W is not int8. In a batch the rows come one by one.
NOINLINE void small_product(const linnet_matrix *m, const float *x, float *y, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; ++p) {
    if (m->kind == FLOAT32)
      small_panel<FLOAT32>(m, x, y + p * PANEL, p);
    else
      small_panel<BFLOAT16>(m, x, y + p * PANEL, p);
  }
}

// ---- a product alone: for tests and benchmarks ----------------------------------------------------------------------

int matmul(const linnet_matmul_call *c) {
  const linnet_matrix *m = &c->matrix;
  const float *x = c->x;
  float *y = c->y;
  const int64_t B = c->rows, threads = c->threads;
  const int64_t panels = (m->out + PANEL - 1) / PANEL, q_stride = quantized_bytes(m->in);
  uint8_t *q = nullptr;
  if (m->kind == INT8 && !(q = (uint8_t *)malloc(B * (q_stride + sizeof(float)) + 1))) return LINNET_NO_MEMORY;
  float *q_scale = q ? (float *)(q + B * q_stride) : nullptr;
  linnet_notice(threads);
#pragma omp parallel num_threads((int)threads) if (threads > 1)
  {
    if (q) {
#pragma omp for schedule(static)
      for (int64_t b = 0; b < B; ++b) quantize_row(x + b * m->in, m->in, q + b * q_stride, q_scale + b);
    }
#pragma omp for schedule(static)
    for (int64_t part = 0; part < threads; ++part)
      matmul(m, x, m->in, q, q_stride, q_scale, y, m->out, B, panels * part / threads, panels * (part + 1) / threads);
  }
  free(q);
  return LINNET_OK;
}

// Read `bytes` of memory once and sum them: a lower bound for any product. A thread reads four places in turn.
int read_sweep(const float *p, int64_t bytes, int64_t threads, float *sink) {
  constexpr int64_t STREAMS = 4, LINE = 16;
  const int64_t each = bytes / 4 / threads / STREAMS / LINE * LINE;
#pragma omp parallel for schedule(static) num_threads((int)threads) if (threads > 1)
  for (int64_t t = 0; t < threads; ++t) {
    const float *from = p + t * STREAMS * each;
    vf part[STREAMS][LINE / VL] = {};
    for (int64_t i = 0; i < each; i += LINE) UNROLL(4)
    for (int64_t s = 0; s < STREAMS; ++s)
      UNROLL(4) for (int n = 0; n < LINE / VL; ++n) part[s][n] += load(from + s * each + i + n * VL);
    for (int s = 1; s < STREAMS; ++s)
      for (int n = 0; n < LINE / VL; ++n) part[0][n] += part[s][n];
    for (int n = 1; n < LINE / VL; ++n) part[0][0] += part[0][n];
    sink[t] = sum(part[0][0]);
  }
  return LINNET_OK;
}

}  // namespace
