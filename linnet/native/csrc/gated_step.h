// One token of the family S = (Diag(a) - e c^T) S + k v^T, out = S^T q: a matrix per head, updated in place.
//
//   ADD      S = a S + k v^T                            RetNet, GLA, Mamba-2
//   REPLACE  S = a S + k (v - c^T S)^T                  delta rules: c = a * key, k = beta key
//   REMOVE   S = a S + k v^T - e (c^T S)^T              WKV-7
//
// a is one, a number, or a number per row of S. A block of columns of S is read once, and again for an erase while it
// is in the first-level cache, and written once. S [D,V], row by row; fields of a layer: recurrent_fields.h.
#pragma once
#include "gates.h"
#include "matmul.h"
#include "mix.h"

namespace {

enum Decay { KEEP, BY_HEAD, BY_CHANNEL };
enum Erase { ADD, REPLACE, REMOVE };

struct HeadStep {
  const float *a;              // [1], [D], or null
  const float *c, *e;          // [D]
  const float *k, *v, *q;      // [D], [V], [D]
  int64_t apart = 0;           // from S to its rounding errors
};

// a sum + x = sum + (x - (1 - a) sum), with its rounding errors `apart` floats after the sums: what a token left does not
// depend on how it was rounded, however slowly it decays.
template <class L>
INLINE vf decay_exactly(float *sums, int64_t apart, float a, vf x, L lanes) {
  const vf now = lanes.get(sums) + lanes.get(sums + apart);
  return add_to_sums<true>(sums, apart, x - (1.0f - a) * now, lanes);
}

// The columns of N vectors; even and odd rows are summed separately. EXACT: see decay_exactly.
template <int DECAY, int ERASE, bool EXACT, int N, class L>
INLINE void gated_columns(float *s, const HeadStep &h, float *out, int64_t m, int64_t D, int64_t V, L lanes) {
  vf value[N], held[N] = {};
  UNROLL(4) for (int n = 0; n < N; ++n) value[n] = lanes.get(h.v + m + n * VL);
  if (ERASE != ADD) {
    vf other[N] = {};
    const auto read = [&](int64_t d, vf *to) {
      UNROLL(4) for (int n = 0; n < N; ++n) to[n] += h.c[d] * lanes.get(s + d * V + m + n * VL);
    };
    int64_t d = 0;
    for (; d + 2 <= D; d += 2) read(d, held), read(d + 1, other);
    if (d < D) read(d, held);
    UNROLL(4) for (int n = 0; n < N; ++n) held[n] += other[n];
    if (ERASE == REPLACE) UNROLL(4) for (int n = 0; n < N; ++n) value[n] -= held[n];
  }
  vf acc[2][N] = {};
  const float factor = DECAY == BY_HEAD ? h.a[0] : 1.0f;
  const auto update = [&](int64_t d, vf *to) {
    UNROLL(4) for (int n = 0; n < N; ++n) {
      float *p = s + d * V + m + n * VL;
      if (EXACT) {
        to[n] += h.q[d] * decay_exactly(p, h.apart, factor, h.k[d] * value[n], lanes);
        continue;
      }
      vf x = lanes.get(p);
      if (DECAY == BY_HEAD) x *= factor;
      if (DECAY == BY_CHANNEL) x *= h.a[d];
      x += h.k[d] * value[n];
      if (ERASE == REMOVE) x -= h.e[d] * held[n];
      lanes.put(p, x);
      to[n] += h.q[d] * x;
    }
  };
  int64_t d = 0;
  for (; d + 2 <= D; d += 2) update(d, acc[0]), update(d + 1, acc[1]);
  if (d < D) update(d, acc[0]);
  UNROLL(4) for (int n = 0; n < N; ++n) lanes.put(out + m + n * VL, acc[0][n] + acc[1][n]);
}

template <int DECAY, int ERASE, bool EXACT = false>
NOINLINE void gated_state(float *s, const HeadStep &h, float *out, int64_t D, int64_t V) {
  constexpr int MOST = VL == 16 ? 4 : 2;  // more would not fit the registers
  int64_t m = 0;
  for (; m + MOST * VL <= V; m += MOST * VL) gated_columns<DECAY, ERASE, EXACT, MOST>(s, h, out, m, D, V, Whole{});
  if (MOST > 2)
    for (; m + 2 * VL <= V; m += 2 * VL) gated_columns<DECAY, ERASE, EXACT, 2>(s, h, out, m, D, V, Whole{});
  for (; m + VL <= V; m += VL) gated_columns<DECAY, ERASE, EXACT, 1>(s, h, out, m, D, V, Whole{});
  if (m < V) gated_columns<DECAY, ERASE, EXACT, 1>(s, h, out, m, D, V, Rest{V - m});
}

// ---- the layers whose projection holds q, k, v and more -------------------------------------------------------------

INLINE bool by_channel(const linnet_gated *g) {
  return g->decay == LINNET_CHANNEL_STEP_DECAY || g->decay == LINNET_SIGMOID_DECAY;
}

// What all heads of a row share, in the scratch memory of a thread.
struct GatedRow {
  float *beta, *dt, *a;  // [H]
  float *decays, *gates;  // [H,D], [H,V]
  float *q, *k, *c, *w, *v;  // of one head: [D], [D], [D], [D], [V]

  GatedRow(const linnet_layer *l, float *room) {
    const int64_t H = l->heads, D = l->key, V = l->value;
    beta = take(&room, round_up(H, 16)), dt = take(&room, round_up(H, 16)), a = take(&room, round_up(H, 16));
    decays = take(&room, round_up(H * D, PANEL)), gates = take(&room, round_up(H * V, PANEL));
    q = take(&room, round_up(D, 16)), k = take(&room, round_up(D, 16));
    c = take(&room, round_up(D, 16)), w = take(&room, round_up(D, 16));
    v = take(&room, round_up(V, 16));
  }
};

int64_t gated_room(const linnet_layer *l) {
  const int64_t H = l->heads, D = l->key, V = l->value;
  return 3 * round_up(H, 16) + round_up(H * D, PANEL) + round_up(H * V, PANEL) + 4 * round_up(D, 16) + round_up(V, 16);
}

// Columns [from, to) of y = A x, in whole panels.
INLINE void columns_of(const linnet_matrix *a, const float *x, float *y, int64_t from, int64_t to) {
  small_product(a, x, y, from / PANEL, (to + PANEL - 1) / PANEL);
}

// beta, dt and a of every head.
INLINE void head_numbers(const linnet_layer *l, const GatedRow &t, const float *in) {
  const linnet_gated *g = &l->gated;
  along(l->heads, [&](int64_t h, auto v) {
    if (g->beta >= 0) v.put(t.beta + h, (float)g->top * sigmoid(v.get(in + g->beta + h)));
    if (g->decay == LINNET_FIXED_DECAY) v.put(t.a + h, v.get(g->rate + h));
    if (g->decay != LINNET_STEP_DECAY) return;
    vf dt = softplus(v.get(in + g->step + h) + v.get(g->step_bias + h));
    const float least = (float)g->least, most = (float)g->most;
    dt = dt < least ? splat(least) : dt > most ? splat(most) : dt;
    v.put(t.dt + h, dt);
    v.put(t.a + h, decay_factor(v.get(g->rate + h) * dt));
  });
}

// a of every channel of head h, in place of what `widen` gave.
INLINE void channel_decays(const linnet_layer *l, float *x, int64_t h) {
  const linnet_gated *g = &l->gated;
  const float power = -1.0f / (float)g->normalizer;
  const bool steps = g->decay == LINNET_CHANNEL_STEP_DECAY;
  along(l->key, [&](int64_t i, auto v) {
    const vf y = v.get(x + i);
    if (steps)
      v.put(x + i, decay_factor(g->rate[h] * softplus(y + v.get(g->step_bias + h * l->key + i))));
    else
      v.put(x + i, decay_factor(softplus(-y) * power));
  });
}

// y [D] = x, turned by the cosines and sines [D/2,2]; y may be x.
INLINE void turn_head(float *y, const float *x, const float *waves, int64_t D) {
  const int64_t half = D / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float cos = waves[2 * i], sin = waves[2 * i + 1], a = x[i], b = x[half + i];
    y[i] = a * cos - b * sin;
    y[half + i] = a * sin + b * cos;
  }
}

// S of head h, and out [V].
void gated_head(const linnet_layer *l, const GatedRow &t, float *s, const float *in, const float *waves, float *out,
                int64_t h) {
  const linnet_gated *g = &l->gated;
  const int64_t D = l->key, V = l->value, of = h / (l->heads / g->groups) * D;
  const float *q = in + g->q + of, *k = in + g->k + of, *v = in + g->v + h * V;
  const float *a = by_channel(g) ? t.decays + h * D : t.a + h;
  if (l->turns) {
    turn_head(t.q, q, waves, D), turn_head(t.k, k, waves, D);
    q = t.q, k = t.k;
  }
  if (g->beta < 0) {
    along(D, [&](int64_t i, auto n) { n.put(t.q + i, n.get(q + i) * (float)g->scale); });
    if (g->scaled_values) along(V, [&](int64_t i, auto n) { n.put(t.v + i, n.get(v + i) * t.dt[h]); });
    const HeadStep step = {a, nullptr, nullptr, k, g->scaled_values ? t.v : v, t.q, l->heads * D * V};
    if (l->exact)
      gated_state<BY_HEAD, ADD, true>(s, step, out, D, V);
    else
      (by_channel(g) ? gated_state<BY_CHANNEL, ADD> : gated_state<BY_HEAD, ADD>)(s, step, out, D, V);
    return;
  }
  unit_length(t.q, q, D, (float)g->scale, g->length_eps);
  unit_length(t.k, k, D, 1.0f, g->length_eps);
  along(D, [&](int64_t i, auto n) {
    const vf key = n.get(t.k + i);
    n.put(t.c + i, g->decay == LINNET_NO_DECAY ? key : key * (by_channel(g) ? n.get(a + i) : splat(a[0])));
    n.put(t.w + i, key * t.beta[h]);
  });
  const HeadStep step = {a, t.c, nullptr, t.w, v, t.q};
  if (g->decay == LINNET_NO_DECAY)
    gated_state<KEEP, REPLACE>(s, step, out, D, V);
  else
    (by_channel(g) ? gated_state<BY_CHANNEL, REPLACE> : gated_state<BY_HEAD, REPLACE>)(s, step, out, D, V);
}

// Heads [h0, h1) of a row: its projection `in`, its states s [H,D,V], the waves of its position, out [H,V].
void gated_heads(const linnet_layer *l, float *s, const float *in, const float *waves, float *out, float *room,
                 int64_t h0, int64_t h1) {
  const linnet_gated *g = &l->gated;
  const int64_t D = l->key, V = l->value;
  const GatedRow t(l, room);
  head_numbers(l, t, in);
  if (by_channel(g)) columns_of(&g->widen, in + g->narrow, t.decays, h0 * D, h1 * D);
  if (g->widen_gate.out) columns_of(&g->widen_gate, in + g->narrow_gate, t.gates, h0 * V, h1 * V);
  for (int64_t h = h0; h < h1; ++h) {
    float *y = out + h * V;
    if (by_channel(g)) channel_decays(l, t.decays + h * D, h);
    gated_head(l, t, s + h * D * V, in, waves, y, h);
    if (g->skip) {
      const float *v = in + g->v + h * V;
      along(V, [&](int64_t i, auto n) { n.put(y + i, n.get(y + i) + g->skip[h] * n.get(v + i)); });
    }
    if (!g->joint) head_norm(g->norm, y, g->norm_weight, g->norm_bias, V, g->norm_eps);
    if (g->gating == LINNET_NO_GATE) continue;
    const float *gate = (g->widen_gate.out ? t.gates : in + g->gate) + h * V;
    along(V, [&](int64_t i, auto n) {
      const vf x = n.get(gate + i);
      n.put(y + i, n.get(y + i) * (g->gating == LINNET_SILU_GATE ? silu(x) : sigmoid(x)));
    });
  }
}

// y [H,V] = the norm over the heads of each of `joint` groups.
void joint_norm(const linnet_layer *l, float *y, const float *x) {
  const linnet_gated *g = &l->gated;
  const int64_t W = l->heads * l->value / g->joint;
  for (int64_t i = 0; i < g->joint; ++i)
    normalize<true>(y + i * W, x + i * W, g->norm_weight + i * W, nullptr, W, g->norm_eps, nullptr);
}

}  // namespace
