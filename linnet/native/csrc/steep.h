// Pairs of tokens in a chunk whose decays per channel are steep: every factor e^{G_t - G_j} by itself, from sums of the
// decays between the two tokens alone, so that no exponent is above zero and no difference of long sums is taken.
//
// A reader h of RWKV-7 (`before`) reads before its own decay: e^{G_{t-1} - G_j}.
#pragma once
#include "gated_chunk.h"

namespace {

// body(i, j, at, e) for reader i, writer j <= i (< i if `before`), the channels at `at`, and the factor between them.
template <class Body>
INLINE void each_pair(const Gated *c, const Chunk &x, bool before, Body body) {
  for (int64_t b = 0; b < c->nb; ++b)
    for (int n = 0; n < NT; ++n)
      for (int i = 0; i < C; ++i) {
        vf sum = {};
        for (int j = before ? i - 1 : i; j >= 0; --j) {
          body(i, j, b * 256 + n * VL, fading(sum));
          sum += load(x.g + b * 256 + j * 16 + n * VL);
        }
      }
}

// A[i][j] = sum_d x_id e^{G_i - G_j} y_jd
NOINLINE void steep_scores(const Gated *c, const Chunk &x, float *A, const float *reader, const float *writer,
                           bool before) {
  vf sums[C * C] = {};
  each_pair(c, x, before, [&](int i, int j, int64_t at, vf e) {
    sums[i * C + j] += load(reader + at + i * 16) * load(writer + at + j * 16) * e;
  });
  for (int i = 0; i < C * C; ++i) A[i] = sum(sums[i]);
}

// The gradients of reader and writer from that of A: added to what is there.
NOINLINE void steep_slopes(const Gated *c, const Chunk &x, const float *P, const float *reader, const float *writer,
                           float *dreader, float *dwriter, bool before) {
  each_pair(c, x, before, [&](int i, int j, int64_t at, vf e) {
    const vf share = e * P[i * C + j];
    float *to_reader = dreader + at + i * 16, *to_writer = dwriter + at + j * 16;
    store(to_reader, load(to_reader) + share * load(writer + at + j * 16));
    store(to_writer, load(to_writer) + share * load(reader + at + i * 16));
  });
}

}  // namespace
