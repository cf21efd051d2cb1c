// One token of Mamba's selective scan, channel by channel: h = e^(dt a) h + dt u b, y = (c . h + skip u) silu(z).
//
// h lies with the channels side by side, [N,C]. Fields of a layer: recurrent_fields.h.
#pragma once
#include "gates.h"

namespace {

// Channels [c0, c1): u and z [C], b and c [N] of the row; y holds what gives dt, then the output.
void scan_channels(const linnet_layer *l, float *h, const float *u, const float *z, const float *b, const float *c,
                   float *y, int64_t c0, int64_t c1) {
  const linnet_scan *g = &l->scan;
  const int64_t C = l->channels, N = g->numbers;
  along(c1 - c0, [&](int64_t i, auto v) {
    const int64_t at = c0 + i;
    const vf dt = softplus(v.get(y + at)), x = v.get(u + at), write = dt * x;
    vf sum[2] = {v.get(g->skip + at) * x, vf{}};
    for (int64_t n = 0; n < N; ++n) {
      float *p = h + n * C + at;
      const vf state = decay_factor(dt * v.get(g->a + n * C + at)) * v.get(p) + write * b[n];
      v.put(p, state);
      sum[n & 1] += c[n] * state;
    }
    v.put(y + at, (sum[0] + sum[1]) * silu(v.get(z + at)));
  });
}

}  // namespace
