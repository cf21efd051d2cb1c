// The average of RWKV-4, channel by channel; a state is n, d and their common exponent p:
//
//     out_t = (n_{t-1} e^p + e^{u + k_t} v_t) / (d_{t-1} e^p + e^{u + k_t})
//     n_t e^p = e^{-w} n_{t-1} e^p + e^{k_t} v_t,   d_t likewise with 1 for v_t,   p_t = max(p_{t-1} - w, k_t)
//
// One of the two exponentials of each sum is e^0, so two are computed for a token instead of four. p loses w at every
// token: what is rounded off goes to `rest`, or the same digits would be lost thousands of times. The backward holds p
// fixed, as linnet/ops/gated/wkv.py says. The fields of a call are in scan_fields.h.
#pragma once
#include "channels.h"
#include "exp2.h"

namespace {

constexpr float NOTHING = -1e30f;  // the exponent of an empty sum

INLINE vf without_sign(vf x) { return (vf)((vi)x & 0x7fffffff); }

// k, with NaN for +infinity, whose share would be infinity / infinity.
INLINE vf usable_key(vf k) { return k <= LARGEST ? k : splat(__builtin_nanf("")); }

// w: an infinite one forgets everything, as does any this large, whose sums are still numbers.
INLINE vf usable_rate(vf w) { return one_nan(w > -NOTHING ? splat(-NOTHING) : w); }

// e^x and e^y over the larger of them, from x - y.
struct Shares {
  vf first, second;
  MEMBER explicit Shares(vf difference) {
    const vf less = exp2_any(without_sign(difference) * -LOG2E);
    first = difference > 0.0f ? splat(1.0f) : less;
    second = difference > 0.0f ? less : splat(1.0f);
  }
};

// The sums before a token: n e^(p + rest), d e^(p + rest).
struct Average {
  vf n, d, p, rest;

  // From s [3,E] of a sequence; null: nothing yet.
  template <class V>
  static MEMBER Average begin(const float *s, int64_t E, V v) {
    if (!s) return {vf{}, vf{}, splat(NOTHING), vf{}};
    const vf n = v.get(s), d = v.get(s + E), p = v.get(s + 2 * E);
    return {n, d, d == 0.0f || p < NOTHING ? splat(NOTHING) : one_nan(p), vf{}};
  }
  // A state has no room for `rest`; once in a call it hardly counts.
  template <class V>
  MEMBER void finish(float *s, int64_t E, V v) const {
    const vf empty = (vf){};
    v.put(s, d == 0.0f ? empty : n);
    v.put(s + E, d);
    v.put(s + 2 * E, d == 0.0f ? empty : p);
  }
  static MEMBER Average load_from(const float *s) {
    return {load(s), load(s + VL), load(s + 2 * VL), load(s + 3 * VL)};
  }
  MEMBER void store_to(float *s) const {
    store(s, n), store(s + VL, d), store(s + 2 * VL, p), store(s + 3 * VL, rest);
  }
};

// What a token reads and adds: out = old n + now v,  n' = keep n + add v.
struct Update {
  vf old, now, out, keep, add;
};

INLINE Update update(Average &s, vf k, vf v, vf w, vf u) {
  const Shares read((s.p - (k + u)) + s.rest);
  const vf one = 1.0f / (read.first * s.d + read.second);
  Update t;
  t.old = read.first * one, t.now = read.second * one;
  t.out = t.old * s.n + t.now * v;
  const vf p = s.p - w, rest = s.rest + ((s.p - p) - w), difference = (p - k) + rest;
  const Shares grown(difference);
  t.keep = grown.first, t.add = grown.second;
  s.n = t.keep * s.n + t.add * v;
  s.d = t.keep * s.d + t.add;
  s.p = difference > 0.0f ? p : k;
  s.rest = difference > 0.0f ? rest : vf{};
  return t;
}

constexpr int64_t PARTS = 4, STEPS = 7;  // vectors of an Average; vectors of a token that the way back needs

void wkv_task(const linnet_wkv_call *c, int64_t seq, int64_t e0, int64_t e1, float *states) {
  const Sequence q(c, seq);
  const int64_t E = c->E;
  const float *const s0 = c->s0 ? c->s0 + seq * 3 * E : nullptr;
  along(e1 - e0, [&](int64_t e, auto v) {
    Average::begin(s0 ? s0 + e0 + e : nullptr, E, v).store_to(states + e * PARTS);
  });
  float *const out = c->out + q.b * c->T * E;
  for (int64_t i = 0; i < q.chunks(c->chunk); ++i) {
    const Tokens tokens(c, q, i, [&](int64_t t) { memset(out + t * E + e0, 0, (e1 - e0) * sizeof(float)); });
    if (c->kept)
      memcpy(c->kept + (q.slot + i) * c->width + e0 * PARTS, states,
             rounded_up(e1 - e0, VL) * PARTS * sizeof(float));
    along(e1 - e0, [&](int64_t e, auto v) {
      const int64_t at = e0 + e;
      const vf w = usable_rate(v.get(c->decay + at)), u = usable_key(v.get(c->bonus + at));
      Average s = Average::load_from(states + e * PARTS);
      for (int64_t j = 0; j < tokens.count; ++j) {
        const int64_t t = tokens.at[j];
        const vf k = usable_key(v.get(c->k + q.b * c->k_b + t * c->k_t + at));
        v.put(out + t * E + at, update(s, k, v.get(c->v + q.b * c->v_b + t * c->v_t + at), w, u).out);
      }
      s.store_to(states + e * PARTS);
    });
  }
  if (!c->s_out) return;
  along(e1 - e0, [&](int64_t e, auto v) {
    Average::load_from(states + e * PARTS).finish(c->s_out + seq * 3 * E + e0 + e, E, v);
  });
}

int wkv(const linnet_wkv_call *c) {
  return each_task(c, rounded_up(channels_of_task(c), VL) * PARTS, 40.0 * c->B * c->T * c->E,
                   [=](int64_t seq, int64_t, int64_t e0, int64_t e1, float *memory) {
                     wkv_task(c, seq, e0, e1, memory);
                   });
}

// The gradients of a block of channels so far: of n and d after the token in hand, and sums of those of w and u.
struct WkvGradient {
  vf n, d, w, u;

  // From gs [3,E] of a sequence that ends with this d: an empty average ends as zeros, whatever its n is.
  template <class V>
  MEMBER void begin(const float *gs, int64_t E, vf last, V v) {
    const vf none = (vf){};
    n = last == 0.0f ? none : v.get(gs), d = last == 0.0f ? none : v.get(gs + E);
  }
  static MEMBER WkvGradient load_from(const float *s) {
    return {load(s), load(s + VL), load(s + 2 * VL), load(s + 3 * VL)};
  }
  MEMBER void store_to(float *s) const {
    store(s, n), store(s + VL, d), store(s + 2 * VL, w), store(s + 3 * VL, u);
  }
};

// The rows of a block of channels, `at` the first of them.
struct WkvRows {
  const linnet_wkv_backward_call *c;
  const Sequence &q;
  int64_t at;
  MEMBER const float *k(int64_t t) const { return c->k + q.b * c->k_b + t * c->k_t + at; }
  MEMBER const float *v(int64_t t) const { return c->v + q.b * c->v_b + t * c->v_t + at; }
  MEMBER const float *g(int64_t t) const { return c->g + q.b * c->g_b + t * c->g_t + at; }
  MEMBER float *dk(int64_t t) const { return c->dk + (q.b * c->T + t) * c->E + at; }
  MEMBER float *dv(int64_t t) const { return c->dv + (q.b * c->T + t) * c->E + at; }
};

// Go through a chunk, whose first token is `first`, from the average before it to the one after it, which is returned;
// steps: [tokens][STEPS][VL].
template <class V>
INLINE Average wkv_steps(float *steps, const WkvRows &rows, const Tokens &tokens, int64_t first, Average s, V v) {
  const linnet_wkv_backward_call *c = rows.c;
  const vf w = usable_rate(v.get(c->decay + rows.at)), u = usable_key(v.get(c->bonus + rows.at));
  const Soon g(rows.g(first), c->g_t), dk(rows.dk(first), c->E), dv(rows.dv(first), c->E);
  const Soon next_k(rows.k(first), c->k_t, -c->chunk), next_v(rows.v(first), c->v_t, -c->chunk);
  for (int64_t j = 0; j < tokens.count; ++j) {
    const int64_t t = tokens.at[j];
    float *const to = steps + j * STEPS * VL;
    g.read(j), dk.write(j), dv.write(j), next_k.read(j), next_v.read(j);
    store(to, s.n), store(to + VL, s.d);
    const Update a = update(s, usable_key(v.get(rows.k(t))), v.get(rows.v(t)), w, u);
    store(to + 2 * VL, a.old), store(to + 3 * VL, a.now), store(to + 4 * VL, a.out);
    store(to + 5 * VL, a.keep), store(to + 6 * VL, a.add);
  }
  return s;
}

// Walk back through the chunk.
template <class V>
INLINE void wkv_walk_back(WkvGradient &G, const float *steps, const WkvRows &rows, const Tokens &tokens, V v) {
  for (int64_t j = tokens.count; j-- > 0;) {
    const int64_t t = tokens.at[j];
    const float *const from = steps + j * STEPS * VL;
    const vf n = load(from), d = load(from + VL), old = load(from + 2 * VL), now = load(from + 3 * VL);
    const vf out = load(from + 4 * VL), keep = load(from + 5 * VL), add = load(from + 6 * VL);
    const vf value = v.get(rows.v(t)), g = v.get(rows.g(t)), present = g * now * (value - out);
    v.put(rows.dk(t), present + (G.n * value + G.d) * add);
    v.put(rows.dv(t), g * now + G.n * add);
    G.u += present;
    G.n = G.n * keep, G.d = G.d * keep;
    G.w -= G.n * n + G.d * d;
    G.n += g * old, G.d -= g * out * old;
  }
}

// Gradients of w and u [2,E] of this sequence go to `sums`.
void wkv_back_task(const linnet_wkv_backward_call *c, float *sums, int64_t seq, int64_t e0, int64_t e1, float *memory) {
  const Sequence q(c, seq);
  const int64_t E = c->E, width = e1 - e0, chunks = q.chunks(c->chunk);
  float *const steps = memory + rounded_up(width, VL) * PARTS;
  const float *const s0 = c->s0 ? c->s0 + seq * 3 * E + e0 : nullptr;
  const float *const gs = c->gs ? c->gs + seq * 3 * E + e0 : nullptr;
  memset(memory, 0, rounded_up(width, VL) * PARTS * sizeof(float));
  for (int64_t i = chunks; i-- > 0;) {
    const WkvRows task = {c, q, e0};
    const Tokens tokens(c, q, i, [&](int64_t t) {
      memset(task.dk(t), 0, width * sizeof(float));
      memset(task.dv(t), 0, width * sizeof(float));
    });
    along(width, [&](int64_t e, auto v) {
      const WkvRows rows = {c, q, e0 + e};
      const float *const kept = c->kept + (q.slot + i) * c->width + (e0 + e) * PARTS;
      const Average last = wkv_steps(steps, rows, tokens, q.begin + i * c->chunk, Average::load_from(kept), v);
      WkvGradient G = WkvGradient::load_from(memory + e * PARTS);
      if (gs && i == chunks - 1) G.begin(gs + e, E, last.d, v);
      wkv_walk_back(G, steps, rows, tokens, v);
      G.store_to(memory + e * PARTS);
    });
  }
  along(width, [&](int64_t e, auto v) {
    WkvGradient G = WkvGradient::load_from(memory + e * PARTS);
    v.put(sums + e0 + e, G.w), v.put(sums + E + e0 + e, G.u);
    if (!c->ds0) return;
    const vf n = v.get(s0 + e), d = v.get(s0 + E + e);
    if (gs && chunks == 0) G.begin(gs + e, E, d, v);
    float *const to = c->ds0 + seq * 3 * E + e0 + e;
    v.put(to, G.n), v.put(to + E, G.d);
    v.put(to + 2 * E, d == 0.0f ? (vf){} : G.n * n + G.d * d);
  });
}

int wkv_backward(const linnet_wkv_backward_call *c) {
  const int64_t E = c->E;
  float *const sums = (float *)malloc((2 * c->S * E + 1) * sizeof(float));
  if (!sums) return LINNET_NO_MEMORY;
  const int64_t floats = rounded_up(channels_of_task(c), VL) * PARTS + c->chunk * STEPS * VL;
  const int status = each_task(c, floats, 80.0 * c->B * c->T * E,
                               [=](int64_t seq, int64_t, int64_t e0, int64_t e1, float *memory) {
                                 wkv_back_task(c, sums + 2 * seq * E, seq, e0, e1, memory);
                               });
  if (status == LINNET_OK) {
    add_parts(c, sums, sums, c->S, 2 * E);
    memcpy(c->ddecay, sums, E * sizeof(float));
    memcpy(c->dbonus, sums + E, E * sizeof(float));
  }
  free(sums);
  return status;
}

}  // namespace
