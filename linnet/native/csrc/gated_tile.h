// The register tiles of the gated family, made of `mac` as those of tile.h: read a state, carry it on, its gradients.
#pragma once
#include "tile_io.h"

namespace {

struct Term {  // a product of 16 x 16 weights with 16 rows: null weights for none
  const float *weights, *rows;
};

// out rows = sum_k A1[i][k] w1[k][:] + A2[i][k] w2[k][:] + sum_f a(i, f) S[f][:], 16 columns; `causal` as in tile.h.
template <int MR>
NOINLINE void lookup_tile(const RowsOut *o, int row, int causal, const Term *terms, const float *a, const float *S,
                          int64_t nb) {
  vf c[MR][NT] = {};
  for (int i = 0; i < 2 && terms[i].weights; ++i) {
    const float *A = terms[i].weights + row * 16, *w = terms[i].rows;
    if (MR == 16) {
      const int first = causal < 0 ? 8 : 0;  // the half that all rows see
      mac<MR, 16, 1>(c, A + first, w + first * 16, 8);
      if (causal > 0) mac<MR, 16, 1, MR / 2, MR>(c, A + 8, w + 8 * 16, 8);
      if (causal < 0) mac<MR, 16, 1, 0, MR / 2>(c, A, w, 8);
    } else {
      const int k0 = causal < 0 ? row : 0, k1 = causal > 0 ? row + MR : 16;
      mac<MR, 16, 1>(c, A + k0, w + k0 * 16, k1 - k0);
    }
  }
  for (int64_t b = 0; a && b < nb; ++b) mac<MR, 16, 1>(c, a + row * 16 + b * 256, S + b * 256, 16);
  write_rows<MR>(*o, row, c, nullptr);
}

INLINE void lookup(const RowsOut &o, int causal, Term one, Term two, const float *a, const float *S, int64_t nb) {
  const Term terms[2] = {one, two};
#define CALL(MR, r) lookup_tile<MR>(&o, r, causal, terms, a, S, nb)
  ROWS16(CALL)
#undef CALL
}

struct Writes {  // keys of 16 tokens, natural layout, and what they write, 16 columns: null keys for none
  const float *keys, *rows;
};

// to[f][:] = fade[f] from[f][:] + sum_j keys1[j][f] rows1[j][:] + keys2[j][f] rows2[j][:]: 16 channels x 16 columns.
template <int MR>
NOINLINE void carry_tile(float *to, const float *from, const float *fade, const Writes *writes, int row) {
  vf c[MR][NT];
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) {
    const vf x = load(from + (row + i) * 16 + n * VL);
    c[i][n] = fade ? x * fade[row + i] : x;
  }
  for (int i = 0; i < 2 && writes[i].keys; ++i) mac<MR, 1, 16>(c, writes[i].keys + row, writes[i].rows, C);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n)
    store(to + (row + i) * 16 + n * VL, c[i][n]);
}

INLINE void carry(float *to, const float *from, const float *fade, Writes one, Writes two) {
  const Writes writes[2] = {one, two};
#define CALL(MR, r) carry_tile<MR>(to, from, fade, writes, r)
  ROWS16(CALL)
#undef CALL
}

// d[f][0..15] = sum_panels sum_m S[f][m] xT[m][:] + sum_j x1(f, j) W1[j][:] + x2(f, j) W2[j][:]: 16 channels, tokens as
// columns; the sum over panels is multiplied by `fade` of the channel and `by` of the token, or null. Terms: weights W,
// rows x [16 channels][16 tokens].
template <int MR>
NOINLINE void slope_tile(float *d, const float *S, int64_t panel_step, int64_t panels, const float *xT,
                         const float *fade, const float *by, const Term *terms, int row) {
  vf c[MR][NT] = {};
  for (int64_t p = 0; p < panels; ++p) mac<MR, 16, 1>(c, S + p * panel_step + row * 16, xT + p * 256, 16);
  if (fade)
    UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) c[i][n] *= fade[row + i];
  if (by)
    UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) c[i][n] *= load(by + n * VL);
  for (int i = 0; i < 2 && terms[i].weights; ++i) mac<MR, 16, 1>(c, terms[i].rows + row * 16, terms[i].weights, C);
  UNROLL(16) for (int i = 0; i < MR; ++i) UNROLL(4) for (int n = 0; n < NT; ++n)
    store(d + (row + i) * 16 + n * VL, c[i][n]);
}

INLINE void slope(float *d, const float *S, int64_t panel_step, int64_t panels, const float *xT, const float *fade,
                  const float *by, Term one, Term two) {
  const Term terms[2] = {one, two};
#define CALL(MR, r) slope_tile<MR>(d, S, panel_step, panels, xT, fade, by, terms, r)
  ROWS16(CALL)
#undef CALL
}

}  // namespace
