// The register tiles of the gated family, made of `mac_panels` as those of tile.h: read a state, carry it on, and its
// gradients. Each is one or PAIR panels wide, which lie `step` floats apart.
#pragma once
#include "tile_io.h"

namespace {

struct Term {  // a product of 16 x 16 weights with rows of 16: null weights for none
  const float *weights, *rows;
};

// sum_k A1[i][k] w1[k][:] + A2[i][k] w2[k][:] + sum_f a(i, f) S[f][:] for 16 rows i; `causal` as in tile.h.
struct Lookup {
  RowsOut out;  // a stride of 0: panels [16][16] one after the other
  int causal;
  Term terms[2];   // weights [16][16], rows: panels 256 apart
  const float *a;  // natural layout
  const float *S;
  int64_t nb, step;  // blocks of a; from panel to panel of S
  Ahead *ahead;
};

template <int MR, int NP>
NOINLINE void lookup_tile(const Lookup *x, int row) {
  vf c[MR][NP * NT] = {};
  for (int i = 0; i < 2 && x->terms[i].weights; ++i) {
    const float *A = x->terms[i].weights + row * 16, *w = x->terms[i].rows;
    if (MR == 16) {
      const int first = x->causal < 0 ? 8 : 0;  // the half that all rows see
      mac_panels<MR, NP, 16, 1>(c, A + first, w + first * 16, 256, 8);
      if (x->causal > 0) mac_panels<MR, NP, 16, 1, MR / 2, MR>(c, A + 8, w + 8 * 16, 256, 8);
      if (x->causal < 0) mac_panels<MR, NP, 16, 1, 0, MR / 2>(c, A, w, 256, 8);
    } else {
      const int k0 = x->causal < 0 ? row : 0, k1 = x->causal > 0 ? row + MR : 16;
      mac_panels<MR, NP, 16, 1>(c, A + k0, w + k0 * 16, 256, k1 - k0);
    }
  }
  for (int64_t b = 0; b < x->nb; ++b) {
    x->ahead->fetch(1);
    mac_panels<MR, NP, 16, 1>(c, x->a + row * 16 + b * 256, x->S + b * 256, x->step, 16);
  }
  if (x->out.stride) return write_rows<MR, NP>(x->out, row, c, nullptr);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n)
    store(x->out.p + n / NT * 256 + (row + i) * 16 + n % NT * VL, c[i][n]);
}

INLINE void lookup(const Lookup &x, int64_t panels) {
#define CALL(MR, r) lookup_tile<MR, 1>(&x, r)
  if (panels == 1) {
    ROWS16(CALL)
    return;
  }
#undef CALL
#define CALL(MR, r) lookup_tile<MR, PAIR>(&x, r)
  ROWS16_PAIR(CALL)
#undef CALL
}

// to[f][:] = fade[f] from[f][:] + sum_j keys1[j][f] rows1[j][:] + keys2[j][f] rows2[j][:], 16 channels.
struct Carry {
  float *to;
  const float *from;
  const float *fade;     // [16], null for 1
  const float *keys[2];  // natural layout; null for none
  const float *rows[2];  // panels 256 apart
  int64_t step;          // from panel to panel of the states
  Ahead *ahead;
};

template <int MR, int NP>
NOINLINE void carry_tile(const Carry *x, int row) {
  x->ahead->fetch(1);
  vf c[MR][NP * NT];
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n) {
    const vf s = load(x->from + n / NT * x->step + (row + i) * 16 + n % NT * VL);
    c[i][n] = x->fade ? s * x->fade[row + i] : s;
  }
  for (int i = 0; i < 2 && x->keys[i]; ++i) mac_panels<MR, NP, 1, 16>(c, x->keys[i] + row, x->rows[i], 256, C);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n)
    store(x->to + n / NT * x->step + (row + i) * 16 + n % NT * VL, c[i][n]);
}

INLINE void carry(const Carry &x, int64_t panels) {
#define CALL(MR, r) carry_tile<MR, 1>(&x, r)
  if (panels == 1) {
    ROWS16(CALL)
    return;
  }
#undef CALL
#define CALL(MR, r) carry_tile<MR, PAIR>(&x, r)
  ROWS16_PAIR(CALL)
#undef CALL
}

// d[f][:] = fade[f] by[:] sum_panels sum_m S[f][m] xT[m][:] + sum_j x1(f, j) W1[j][:] + x2(f, j) W2[j][:]: 16 channels f,
// 16 tokens as columns, of one side or of two next to each other that meet the same state.
struct Slope {
  float *d;              // a side is 256 floats
  const float *S;
  int64_t step, panels;  // of S
  const float *xT;
  int64_t x_step;        // to the next side
  const float *fade, *by;  // [16] each, null for 1
  Term terms[2];         // rows x [16 channels][16 tokens], for both sides; weights W
  int64_t w_step;        // of W to the next side
};

template <int MR, int NP>
NOINLINE void slope_tile(const Slope *x, int row) {
  vf c[MR][NP * NT] = {};
  for (int64_t p = 0; p < x->panels; ++p)
    mac_panels<MR, NP, 16, 1>(c, x->S + p * x->step + row * 16, x->xT + p * 256, x->x_step, 16);
  UNROLL(16) for (int i = 0; i < MR && x->fade; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n) c[i][n] *= x->fade[row + i];
  UNROLL(16) for (int i = 0; i < MR && x->by; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n)
    c[i][n] *= load(x->by + n % NT * VL);
  for (int i = 0; i < 2 && x->terms[i].weights; ++i)
    mac_panels<MR, NP, 16, 1>(c, x->terms[i].rows + row * 16, x->terms[i].weights, x->w_step, C);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NP * NT; ++n)
    store(x->d + n / NT * 256 + (row + i) * 16 + n % NT * VL, c[i][n]);
}

INLINE void slope(const Slope &x, int64_t sides) {
#define CALL(MR, r) slope_tile<MR, 1>(&x, r)
  if (sides == 1) {
    ROWS16(CALL)
    return;
  }
#undef CALL
#define CALL(MR, r) slope_tile<MR, PAIR>(&x, r)
  ROWS16_PAIR(CALL)
#undef CALL
}

}  // namespace
