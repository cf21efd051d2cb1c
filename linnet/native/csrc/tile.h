// The register tiles all products are made of: 16 rows, cut so that the accumulators fill the register file.
//
//   mac:   c[i][:] += sum_k a(i, k) b(k, :)      a(i, k) = a[i*SAI + k*SAK] (broadcast),  b(k, :) = b[k*16 ...]
//
// Every stride inside the scratch memory is a compile-time constant. Each tile is a separate function that is never
// inlined: with more code around it gcc keeps the accumulators in memory and loses a third of the speed.
#pragma once
#include "simd.h"

namespace {

// The same with NP panels of b side by side, `step` floats apart: every broadcast number serves NP times as many sums.
template <int MR, int NP, int SAI, int SAK, int FROM = 0, int TO = MR>
INLINE void mac_panels(vf (&c)[MR][NP * NT], const float *a, const float *b, int64_t step, int64_t K) {  // rows [FROM, TO)
  UNROLL(4) for (int64_t k = 0; k < K; ++k) {
    vf bv[NP * NT];
    UNROLL(4) for (int n = 0; n < NP * NT; ++n) bv[n] = load(b + n / NT * step + k * 16 + n % NT * VL);
    UNROLL(16) for (int i = FROM; i < TO; ++i) {
      const float ai = a[i * SAI + k * SAK];
      UNROLL(4) for (int n = 0; n < NP * NT; ++n) c[i][n] += ai * bv[n];
    }
  }
}

template <int MR, int SAI, int SAK, int FROM = 0, int TO = MR>
INLINE void mac(vf (&c)[MR][NT], const float *a, const float *b, int64_t K) {
  mac_panels<MR, 1, SAI, SAK, FROM, TO>(c, a, b, 0, K);
}

struct Rows {  // consecutive tokens of one head
  const float *p;
  int64_t stride;  // floats from one token to the next
};

// Rows that will be needed soon, prefetched a few lines at a time between blocks of work:
// all together they would take every line buffer the loads of this chunk need. A unit goes with a 16 x 16 x 16 product,
// and a row ends on a whole unit: few branches, all easy to predict.
struct Ahead {
  static constexpr int MOST = 8, LINES = 6;
  const float *row[MOST];
  int64_t stride[MOST], units[MOST];  // units per row
  int tensors = 0, at = 0;
  int64_t tokens = 0, i = 0, left = 0;  // left: units of this row
  int64_t products = 1, all = 1, due = 0;  // `all` units in so many products
  const float *p = nullptr;

  void clear(int64_t of_tokens) {  // the rows need not be
    tensors = at = 0;
    tokens = of_tokens;
    i = left = due = all = 0;
    products = 1;
    p = nullptr;
  }

  void add(Rows x, int64_t width) {
    row[tensors] = x.p;
    stride[tensors] = x.stride;
    units[tensors++] = (width + 16 * LINES - 1) / (16 * LINES);
  }

  // Spread everything evenly over so many products.
  void pace(int64_t n) {
    products = n;
    all = 0;
    for (int t = 0; t < tensors; ++t) all += units[t] * tokens;
  }

  void start() {
    if (tensors == 0 || tokens < 1) return;
    p = row[0];
    left = units[0];
  }

  inline __attribute__((always_inline)) void fetch(int64_t n) {
    for (due += n * all; due >= products && p; due -= products) {
      UNROLL(6) for (int l = 0; l < LINES; ++l) __builtin_prefetch(p + l * 16, 0, 3);
      p += LINES * 16;
      if (--left == 0) next_row();
    }
  }

  inline __attribute__((always_inline)) void next_row() {
    row[at] += stride[at];
    if (++i == tokens) {
      i = 0;
      ++at;
    }
    p = at < tensors ? row[at] : nullptr;
    left = at < tensors ? units[at] : 0;
  }
};

// CALL(rows of the tile, first row) until all 16 rows are done; ROWS16_PAIR: of tiles two panels wide.
#if defined(__AVX512F__)
#define ROWS16(CALL) \
  {                  \
    CALL(16, 0);     \
  }
#define ROWS16_PAIR(CALL) \
  {                       \
    CALL(8, 0);           \
    CALL(8, 8);           \
  }
#elif defined(__AVX2__)
#define ROWS16(CALL) \
  {                  \
    CALL(6, 0);      \
    CALL(6, 6);      \
    CALL(4, 12);     \
  }
#else
#define ROWS16(CALL) \
  {                  \
    CALL(2, 0);      \
    CALL(2, 2);      \
    CALL(2, 4);      \
    CALL(2, 6);      \
    CALL(2, 8);      \
    CALL(2, 10);     \
    CALL(2, 12);     \
    CALL(2, 14);     \
  }
#endif

// Two panels of 16 columns fill 32 registers with tiles of 8 rows: 10 loads for 16 sums, where one panel needs 17. With
// 16 registers a tile of one panel is as wide as they allow.
#if defined(__AVX512F__)
constexpr int PAIR = 2;
constexpr int TILES = 1;  // per 16 rows of one panel
#else
constexpr int PAIR = 1;
#define ROWS16_PAIR ROWS16
#if defined(__AVX2__)
constexpr int TILES = 3;
#else
constexpr int TILES = 8;
#endif
#endif

// ---- out[16][16] = sum_k a(i, k) b[k][0..15]: scores of 16 x 16 tokens, over nb blocks of 16 steps.
template <int MR, int SAI, int SAK>
NOINLINE void score_tile(float *out, const float *a, const float *b, int64_t nb) {
  vf c[MR][NT] = {};
  for (int64_t blk = 0; blk < nb; ++blk) mac<MR, SAI, SAK>(c, a + blk * 256, b + blk * 256, 16);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) store(out + i * 16 + n * VL, c[i][n]);
}

template <int SAI, int SAK>
INLINE void scores(float *out, const float *a, const float *b, int64_t nb) {
#define CALL(MR, r) score_tile<MR, SAI, SAK>(out + (r) * 16, a + (r) * SAI, b, nb)
  ROWS16(CALL)
#undef CALL
}

// ---- out rows = factor_i * ( sum_k A[i][k] w[k][:] + sum_f a(i, f) S[f][:] ), 16 columns.
struct RowsOut {
  float *p;          // row 0 of the output, these columns
  int64_t stride;    // floats between rows
  int64_t rows;      // how many of the 16 rows exist
  int64_t width;     // how many of the 16 columns exist
  bool nontemporal;  // whole, aligned rows only
};

template <int MR, int NP>
INLINE void write_rows(const RowsOut &o, int row, vf (&c)[MR][NP * NT], const float *factor) {
  UNROLL(16) for (int i = 0; i < MR; ++i) {
    if (row + i >= o.rows) return;
    float *p = o.p + (row + i) * o.stride;
    UNROLL(4) for (int n = 0; n < NP * NT; ++n) {
      const vf x = factor ? c[i][n] * factor[row + i] : c[i][n];
      if (o.nontemporal) {
        stream(p + n * VL, x);
      } else if ((n + 1) * VL <= o.width) {
        store(p + n * VL, x);
      } else if (n * VL < o.width) {
        float buf[VL];
        store(buf, x);
        memcpy(p + n * VL, buf, (o.width - n * VL) * sizeof(float));
      }
    }
  }
}

// What reading a state takes besides the tensors: causal > 0: row i sees k <= i; causal < 0: row i sees k >= i; 0: A is
// not used. A tile skips what no row of it sees. Sums start from h[i] z[:] if there is an h.
struct Reading {
  RowsOut out;
  int causal;
  const float *A;               // [16][16]
  const float *w, *S;           // a panel of the tokens of A, [16][16]; of the state, [nb * 16][16]
  int64_t w_step, S_step;       // to their next panels
  const float *factor, *h, *z;  // [16] rows (null: 1), [16] rows (null: none), [16] columns and more with each panel
};

template <int MR, int NP, int SAI, int SAK>
NOINLINE void read_tile(const Reading *r, int row, const float *A, const float *a, int64_t nb, Ahead *ahead) {
  vf c[MR][NP * NT] = {};
  const float *w = r->w;
  const int64_t step = r->w_step;
  const int causal = r->causal;
  if (r->h)
    UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n) {
      c[i][n] = r->h[row + i] * load(r->z + n * VL);
    }
  if (MR == 16) {
    const int first = causal < 0 ? 8 : 0;  // the half that all rows see
    if (causal) mac_panels<MR, NP, 16, 1>(c, A + first, w + first * 16, step, 8);
    if (causal > 0) mac_panels<MR, NP, 16, 1, MR / 2, MR>(c, A + 8, w + 8 * 16, step, 8);
    if (causal < 0) mac_panels<MR, NP, 16, 1, 0, MR / 2>(c, A, w, step, 8);
  } else if (causal) {
    const int k0 = causal < 0 ? row : 0, k1 = causal > 0 ? row + MR : 16;
    mac_panels<MR, NP, 16, 1>(c, A + k0, w + k0 * 16, step, k1 - k0);
  }
  for (int64_t blk = 0; blk < nb; ++blk) {
    ahead->fetch(1);
    mac_panels<MR, NP, SAI, SAK>(c, a + blk * 256, r->S + blk * 256, r->S_step, 16);
  }
  write_rows<MR, NP>(r->out, row, c, r->factor);
}

template <int SAI, int SAK>
INLINE void read_one(const Reading &x, const float *a, int64_t nb, Ahead &ahead) {
#define CALL(MR, r) read_tile<MR, 1, SAI, SAK>(&x, r, x.A + (r) * 16, a + (r) * SAI, nb, &ahead)
  ROWS16(CALL)
#undef CALL
}

template <int SAI, int SAK>
INLINE void read_pair(const Reading &x, const float *a, int64_t nb, Ahead &ahead) {
#define CALL(MR, r) read_tile<MR, PAIR, SAI, SAK>(&x, r, x.A + (r) * 16, a + (r) * SAI, nb, &ahead)
  ROWS16_PAIR(CALL)
#undef CALL
}

template <int SAI, int SAK>
INLINE void read(const RowsOut &o, int causal, const float *A, const float *w, const float *a, const float *S,
                 int64_t nb, const float *factor, Ahead &ahead) {
  read_one<SAI, SAK>({o, causal, A, w, S, 0, 0, factor, nullptr, nullptr}, a, nb, ahead);
}

// s += x; the rounding error of the sum goes to e (unless null): Fast2Sum, exact while |s| >= |x|.
INLINE void add_to(float *s, float *e, vf x) {
  const vf old = load(s), sum = old + x;
  store(s, sum);
  if (e) store(e, load(e) + (x - (sum - old)));
}

// ---- S[f][:] += sum_j a(f, j) w[j][:], 16 features x 16 columns. Sums of 16 tokens are rounded into S once.
struct State {
  float *S, *E;  // E: errors, null if not gathered
  int64_t step;  // to the next panel
  bool fresh;    // S holds nothing yet: it is written, not added to
};

template <int MR, int NP, int SAI, int SAK, bool EXACT>
NOINLINE void update_tile(float *S, float *E, int64_t step, bool fresh, const float *a, const float *w) {
  vf c[MR][NP * NT] = {};
  mac_panels<MR, NP, SAI, SAK>(c, a, w, 256, C);
  if (fresh) {
    UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n) {
      store(S + n / NT * step + i * 16 + n % NT * VL, c[i][n]);
    }
    return;
  }
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n) {
    const int64_t at = n / NT * step + i * 16 + n % NT * VL;
    add_to(S + at, EXACT ? E + at : nullptr, c[i][n]);
  }
}

// CALL for the rows of a tile, NP panels wide.
#define UPDATE(MR, NP, r)                                                                                      \
  ahead.fetch(1);                                                                                              \
  if (x.E)                                                                                                     \
    update_tile<MR, NP, SAI, SAK, true>(x.S + (r) * 16, x.E + (r) * 16, x.step, x.fresh, a + (r) * SAI, w);     \
  else                                                                                                         \
    update_tile<MR, NP, SAI, SAK, false>(x.S + (r) * 16, nullptr, x.step, x.fresh, a + (r) * SAI, w)
template <int SAI, int SAK>
INLINE void update_one(const State &x, const float *a, const float *w, Ahead &ahead) {
#define CALL(MR, r) UPDATE(MR, 1, r)
  ROWS16(CALL)
#undef CALL
}

template <int SAI, int SAK>
INLINE void update_pair(const State &x, const float *a, const float *w, Ahead &ahead) {
#define CALL(MR, r) UPDATE(MR, PAIR, r)
  ROWS16_PAIR(CALL)
#undef CALL
}
#undef UPDATE

template <int SAI, int SAK>
INLINE void update(float *S, float *E, const float *a, const float *w, Ahead &ahead) {
  update_one<SAI, SAK>({S, E, 0, false}, a, w, ahead);
}

// ---- d[f][0..15] = z[f] h[:] + sum_panels sum_m S[f][m] xT[m][:] (+ sum_j a(f, j) W[j][:]), 16 features, tokens as
// columns.
template <int MR>
NOINLINE void grad_tile(float *d, const float *S, int64_t panel_step, int64_t panels, const float *xT, const float *z,
                        const float *h, const float *a, const float *W, Ahead *ahead) {
  vf c[MR][NT];
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) c[i][n] = z[i] * load(h + n * VL);
  for (int64_t p = 0; p < panels; ++p) {
    ahead->fetch(1);
    mac<MR, 16, 1>(c, S + p * panel_step, xT + p * 256, 16);
  }
  if (a) mac<MR, 16, 1>(c, a, W, C);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) store(d + i * 16 + n * VL, c[i][n]);
}

// d, S, z, a: the 16 rows of one block; S in panels panel_step apart; a may be null.
INLINE void grads(float *d, const float *S, int64_t panel_step, int64_t panels, const float *xT, const float *z,
                  const float *h, const float *a, const float *W, Ahead &ahead) {
#define CALL(MR, r) \
  grad_tile<MR>(d + (r) * 16, S + (r) * 16, panel_step, panels, xT, z + (r), h, a ? a + (r) * 16 : nullptr, W, &ahead)
  ROWS16(CALL)
#undef CALL
}

}  // namespace
