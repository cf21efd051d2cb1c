// One token of RWKV: the mixtures of a token with the one before it, then a recurrence of channels or of heads.
//
//   WKV-4  out = (e^p n + e^(u + k) v) / (e^p d + e^(u + k)), then e^p n and e^p d decay by e^-w and gain e^k v and e^k;
//          s [3,E]: n, d and p, the largest exponent in them. p of an empty state (d = 0) does not count.
//   WKV-7  S = (Diag(a) - rate c c^T) S + k v^T per head: gated_step.h
//   channel mixing  out = W_v relu(k)^2 sigmoid(r), without a recurrence
#pragma once
#include "gated_step.h"

namespace {

constexpr int64_t MIXTURES = 6;

// The matrices that multiply the mixtures, in their order; unused ones have out = 0.
struct Mixtures {
  const linnet_matrix *a[MIXTURES];
  int64_t at[MIXTURES + 1];  // where the output of each begins in a row of the projection

  explicit Mixtures(const linnet_layer *l)
      : a{&l->in, &l->rwkv.k, &l->rwkv.v, &l->rwkv.decay_in, &l->rwkv.rate_in, &l->rwkv.gate_in} {
    at[0] = 0;
    for (int64_t i = 0; i < MIXTURES; ++i) at[i + 1] = at[i] + round_up(a[i]->out, PANEL);
  }
};

INLINE bool is_rwkv(const linnet_layer *l) {
  return l->mixer == LINNET_WKV4 || l->mixer == LINNET_WKV7 || l->mixer == LINNET_CHANNEL_MIX;
}

// y [mixtures,E] = n + shift (past - n)
void mix_with_past(const linnet_layer *l, float *y, const float *n, const float *past, int64_t E) {
  const int64_t count = l->mixer == LINNET_WKV7 ? MIXTURES : l->mixer == LINNET_WKV4 ? 3 : l->rwkv.k.out ? 2 : 1;
  for (int64_t j = 0; j < count; ++j)
    along(E, [&](int64_t i, auto v) {
      const vf now = v.get(n + i);
      v.put(y + j * E + i, now + v.get(l->rwkv.shift + j * E + i) * (v.get(past + i) - now));
    });
}

// out [c0, c1) = relu(k)^2
void squared_relu(const float *in, float *out, int64_t c0, int64_t c1) {
  along(c1 - c0, [&](int64_t i, auto v) {
    const vf k = max_(v.get(in + c0 + i), 0.0f);
    v.put(out + c0 + i, k * k);
  });
}

// out [c0, c1) = sigmoid(r) * WKV-4 of k and v
void wkv4_channels(const linnet_layer *l, float *s, const float *in, float *out, int64_t c0, int64_t c1) {
  const Mixtures m(l);
  const int64_t E = l->channels;
  along(c1 - c0, [&](int64_t i, auto lanes) {
    const int64_t c = c0 + i;
    const vf k = lanes.get(in + m.at[1] + c), v = lanes.get(in + m.at[2] + c);
    const vf n = lanes.get(s + c), d = lanes.get(s + E + c), w = lanes.get(l->rwkv.decay + c);
    const vf kept = lanes.get(s + 2 * E + c), p = d == 0.0f ? splat(-1e30f) : kept;
    const vf now = k + lanes.get(l->rwkv.bonus + c), top = p > now ? p : now;
    const vf old = decay_factor(p - top), fresh = decay_factor(now - top);
    const vf y = (old * n + fresh * v) / (old * d + fresh);
    lanes.put(out + c, sigmoid(lanes.get(in + c)) * y);
    const vf left = p - w, next = left > k ? left : k;
    const vf keep = decay_factor(left - next), add = decay_factor(k - next);
    lanes.put(s + c, keep * n + add * v);
    lanes.put(s + E + c, keep * d + add);
    lanes.put(s + 2 * E + c, next);
  });
}

struct Wkv7Row {
  float *narrow;                  // [3,rank]
  float *decays, *rates, *gates, *values;  // [H,D], [H,D], [H,V], [H,V]
  float *k, *c, *e;               // of one head, [D]

  Wkv7Row(const linnet_layer *l, float *room) {
    const int64_t H = l->heads, D = l->key, V = l->value;
    narrow = take(&room, 3 * round_up(rank(l), 16));
    decays = take(&room, round_up(H * D, PANEL)), rates = take(&room, round_up(H * D, PANEL));
    gates = take(&room, round_up(H * V, PANEL)), values = take(&room, round_up(H * V, PANEL));
    k = take(&room, round_up(D, 16)), c = take(&room, round_up(D, 16)), e = take(&room, round_up(D, 16));
  }
  static int64_t rank(const linnet_layer *l) {
    const linnet_rwkv *w = &l->rwkv;
    const int64_t two = w->decay_in.out > w->rate_in.out ? w->decay_in.out : w->rate_in.out;
    return two > w->gate_in.out ? two : w->gate_in.out;
  }
};

int64_t wkv7_room(const linnet_layer *l) {
  const int64_t H = l->heads, D = l->key, V = l->value, narrow = 3 * round_up(Wkv7Row::rank(l), 16);
  return narrow + 2 * round_up(H * D, PANEL) + 2 * round_up(H * V, PANEL) + 3 * round_up(D, 16);
}

// The values [i0, i1) of a row: kept in `first` by the first layer, and v + (first - v) sigmoid(y) in a later one.
INLINE const float *wkv7_values(const linnet_layer *l, const float *v, float *first, float *y, int64_t i0, int64_t i1) {
  if (l->rwkv.values == LINNET_OWN_VALUES) return v;
  if (l->rwkv.values == LINNET_GIVES_VALUES) {
    memcpy(first + i0, v + i0, (i1 - i0) * sizeof(float));
    return v;
  }
  columns_of(&l->rwkv.value_out, v + l->heads * l->value, y, i0, i1);
  along(i1 - i0, [&](int64_t i, auto n) {
    const vf own = n.get(v + i0 + i);
    n.put(y + i0 + i, own + (n.get(first + i0 + i) - own) * sigmoid(n.get(y + i0 + i)));
  });
  return y;
}

// Heads [h0, h1) of a row: its projection `in`, its states s [H,D,V], out [H,V], `first` [H,V] if values are shared.
void wkv7_heads(const linnet_layer *l, float *s, const float *in, float *first, float *out, float *room, int64_t h0,
                int64_t h1) {
  const linnet_rwkv *w = &l->rwkv;
  const Mixtures m(l);
  const Wkv7Row t(l, room);
  const int64_t D = l->key, V = l->value;
  float *speed = t.narrow, *gate_in = speed + round_up(Wkv7Row::rank(l), 16);
  along(w->decay_in.out, [&](int64_t i, auto v) { v.put(speed + i, tanh_(v.get(in + m.at[3] + i))); });
  along(w->gate_in.out, [&](int64_t i, auto v) { v.put(gate_in + i, sigmoid(v.get(in + m.at[5] + i))); });
  columns_of(&w->decay_out, speed, t.decays, h0 * D, h1 * D);
  columns_of(&w->rate_out, in + m.at[4], t.rates, h0 * D, h1 * D);
  columns_of(&w->gate_out, gate_in, t.gates, h0 * V, h1 * V);
  const float *values = wkv7_values(l, in + m.at[2], first, t.values, h0 * V, h1 * V);
  for (int64_t h = h0; h < h1; ++h) {
    const float *r = in + h * D, *k = in + m.at[1] + h * D, *v = values + h * V, *bonus = w->bonus + h * D;
    float *a = t.decays + h * D, *y = out + h * V;
    const float *rate = t.rates + h * D;
    along(D, [&](int64_t i, auto n) { n.put(t.c + i, n.get(k + i) * n.get(w->remove + h * D + i)); });
    const float size = sqrtf(total(D, [&](int64_t i, auto n) { return n.get(t.c + i) * n.get(t.c + i); }));
    const float by = 1.0f / (size > 1e-12f || size != size ? size : 1e-12f);
    along(D, [&](int64_t i, auto n) {
      const vf share = sigmoid(n.get(rate + i)), c = n.get(t.c + i) * by;
      n.put(a + i, decay_factor(-0.60653066f * sigmoid(n.get(a + i))));  // e^-0.5
      n.put(t.c + i, c);
      n.put(t.e + i, c * share);
      n.put(t.k + i, n.get(k + i) * (1.0f + (share - 1.0f) * n.get(w->replace + h * D + i)));
    });
    gated_state<BY_CHANNEL, REMOVE>(s + h * D * V, {a, t.c, t.e, t.k, v, r}, y, D, V);
    head_norm(LINNET_LAYER_NORM, y, w->norm_weight + h * V, w->norm_bias + h * V, V, w->norm_eps);
    const float present =
        total(D, [&](int64_t i, auto n) { return n.get(r + i) * n.get(t.k + i) * n.get(bonus + i); });
    const float *gate = t.gates + h * V;
    along(V, [&](int64_t i, auto n) { n.put(y + i, (n.get(y + i) + present * n.get(v + i)) * n.get(gate + i)); });
  }
}

}  // namespace
