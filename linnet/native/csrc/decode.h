// The whole model for one token of each row, in one call and one parallel region.
//
// Few rows: the threads are one team. Panels of a matrix, heads and channels are split between them, with a barrier
// after each; every thread computes the norms of a single row itself, which is cheaper than waiting. Many rows: each
// thread takes its own rows through all layers and never waits. A row's numbers are the same bits either way.
#pragma once
#include <sched.h>

#include "matmul.h"
#include "mix.h"
#include "rwkv_step.h"
#include "scan_step.h"

namespace {

// ---- threads --------------------------------------------------------------------------------------------------------

struct Gate {
  alignas(64) int arrived;
  alignas(64) int phase;
};

struct Team {
  Gate *gate;
  int64_t rank, size;

  // Wait until all have arrived; meanwhile prefetch `next`, what this thread reads afterwards, into the second level.
  void wait(const char *next = nullptr, int64_t bytes = 0) const {
    if (size == 1) return;
    const char *const end = next + bytes;
    const int phase = __atomic_load_n(&gate->phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&gate->arrived, 1, __ATOMIC_ACQ_REL) == size) {
      __atomic_store_n(&gate->arrived, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&gate->phase, phase + 1, __ATOMIC_RELEASE);
      return;
    }
    for (int64_t spins = 1; __atomic_load_n(&gate->phase, __ATOMIC_ACQUIRE) == phase; ++spins) {
      if (next < end) {
        __builtin_prefetch(next, 0, 2);
        next += 64;
        continue;
      }
#if defined(__x86_64__)
      _mm_pause();
#endif
      if (spins % 4096 == 0) sched_yield();  // another thread may need this core
    }
  }
};

struct Range {
  int64_t from, to;
};

// The share of n things, in whole units, of this thread.
Range share(const Team &team, int64_t n, int64_t unit = 1) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t a = units * team.rank / team.size * unit, b = units * (team.rank + 1) / team.size * unit;
  return {a < n ? a : n, b < n ? b : n};
}

// ---- scratch --------------------------------------------------------------------------------------------------------

constexpr int64_t QUANTIZED = 3;  // inputs of a product that are quantized at once, at most: those of RWKV

// Widths of the rows of the buffers, in floats; a multiple of 16, and not of 1024, whose rows share cache sets.
struct Widths {
  int64_t x, big, mixed, wide, quantized, own, waves, first;
};

int64_t padded(int64_t n) {
  n = round_up(n, 16);
  return n % 1024 ? n : n + 16;
}

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t map_room(const linnet_map *m) { return 4 * larger(larger(m->R, m->F), 2 * m->D) + 64; }

// Scratch memory of a thread for the heads of a layer.
int64_t room_of(const linnet_layer *l, int64_t longest) {
  if (l->mixer == LINNET_GATED) return gated_room(l);
  if (l->mixer == LINNET_WKV7) return wkv7_room(l);
  if (l->mixer == LINNET_SCAN) return l->scan.select.out;
  const int64_t G = l->kv_heads ? l->heads / l->kv_heads : 0;
  const int64_t heads = round_up(2 * (G + 1), 16) + round_up((l->heads + l->kv_heads) * l->key, 16);
  if (l->mixer != LINNET_LINEAR) return heads + round_up(larger(longest, l->window), 16);
  return heads + (G + 1) * l->features + larger(map_room(&l->q_map), map_room(&l->k_map));
}

Widths widths_of(const linnet_model *m, int64_t longest) {
  Widths w = {padded(m->width), 16, 16, 0, 0, 0, padded(2 * m->half), 0};
  for (int64_t i = 0; i < m->n_layers; ++i) {
    const linnet_layer *l = m->layers + i;
    const int64_t projected = is_rwkv(l) ? Mixtures(l).at[MIXTURES] : l->in.out + l->scan.select.out;
    w.big = larger(w.big, larger(projected, l->up.out));
    w.mixed = larger(w.mixed, larger(l->out.in, l->hidden));
    w.wide = larger(w.wide, is_rwkv(l) ? MIXTURES * m->width : l->gated.joint ? l->out.in : 0);
    w.own = larger(w.own, room_of(l, longest));
    if (l->rwkv.values) w.first = larger(w.first, round_up(l->heads * l->value, 16));
  }
  w.big = padded(w.big);
  w.mixed = padded(w.mixed);
  w.wide = w.wide ? padded(w.wide) : 0;
  const int64_t several = w.wide ? QUANTIZED * quantized_bytes(m->width) : 0;
  w.quantized = padded((larger(several, quantized_bytes(larger(m->width, w.mixed))) + 3) / 4 + 1);
  w.own = padded(w.own);
  return w;
}

struct Buffers {
  float *x, *n, *y;   // [rows, x]: the residual path, normed, what a branch adds
  float *big, *mixed;  // [rows, big], [rows, mixed]
  float *wide;        // [rows, wide]: mixtures of RWKV, or `mixed` after a joint norm
  float *first;       // [rows, first]: the values of the first layer, for later ones
  float *q, *scale;   // [rows, quantized] bytes; [QUANTIZED, rows]
  float *waves;       // [rows, waves]: cos, sin of a row's position
};

constexpr int64_t GATE = 256;  // bytes

int64_t row_floats(const Widths &w) {
  return 3 * w.x + w.big + w.mixed + w.wide + w.first + w.quantized + w.waves + 16;
}
int64_t thread_floats(const Widths &w) { return w.own + 2 * w.x + w.wide + w.quantized + w.waves + 16; }

int64_t decode_scratch(const linnet_model *m, int64_t B, int64_t threads, int64_t longest) {
  const Widths w = widths_of(m, longest);
  return GATE + 4 * (B * row_floats(w) + threads * thread_floats(w));
}

// ---- one thread's part ----------------------------------------------------------------------------------------------

struct Decoder {
  const linnet_decode *c;
  const linnet_model *m;
  Team team;
  Widths w;
  Buffers b;
  float *own;
  int64_t first, rows;  // of the call
  bool alone;           // one row and several threads: each keeps its own copy of the row's residual path

  void row_wait() const {
    if (!alone) team.wait();
  }
  Range my_rows() const { return alone || team.size == 1 ? Range{0, rows} : share(team, rows); }
  int64_t slot(int64_t r) const { return c->slots[first + r]; }
  int64_t position(int64_t r) const { return c->positions[slot(r)]; }
  float *state(const linnet_layer *l, int64_t r) const { return c->states + slot(r) * c->stride + l->state; }

  void norm(float *y, const float *x, const float *weight, const float *bias, double eps) const {
    if (m->rms)
      normalize<true>(y, x, weight, bias, m->width, eps, nullptr);
    else
      normalize<false>(y, x, weight, bias, m->width, eps, nullptr);
  }

  // cos and sin of position t times each frequency, from its digits in base 256.
  void turn(float *to, int64_t t) const {
    const int64_t half = m->half;
    const double *low = m->waves + (t & 255) * 2 * half;
    if (t < 256) {
      for (int64_t i = 0; i < 2 * half; ++i) to[i] = (float)low[i];
      return;
    }
    for (int64_t i = 0; i < half; ++i) {
      double a = low[2 * i], b = low[2 * i + 1];
      for (int64_t d = 1, rest = t >> 8; rest; ++d, rest >>= 8) {
        const double *p = m->waves + ((d * 256 + (rest & 255)) * half + i) * 2, re = a * p[0] - b * p[1];
        b = a * p[1] + b * p[0];
        a = re;
      }
      to[2 * i] = (float)a;
      to[2 * i + 1] = (float)b;
    }
  }

  void enter() const {
    const Range s = my_rows();
    const int64_t E = m->width;
    for (int64_t r = s.from; r < s.to; ++r) {
      float *x = b.x + r * w.x, *turns = b.waves + r * w.waves;
      const int64_t t = position(r);
      if (m->embed)
        memcpy(x, m->embed + c->tokens[first + r] * E, E * sizeof(float));
      else
        matmul(&m->input, c->values + (first + r) * m->input.in, 0, nullptr, 0, nullptr, x, 0, 1, 0, (E + 31) / 32);
      if (m->positions == LINNET_LEARNED)
        along(E, [&](int64_t i, auto v) { v.put(x + i, v.get(x + i) + v.get(m->table + t * E + i)); });
      if (m->half) {
        if (r > s.from && t == position(r - 1))
          memcpy(turns, turns - w.waves, 2 * m->half * sizeof(float));
        else
          turn(turns, t);
      }
      if (m->positions == LINNET_SINUSOIDAL)
        for (int64_t i = 0; i < E; ++i) x[i] += turns[i ^ 1] * (float)m->gain;  // sin first, then cos
    }
  }

  // The quantized rows of input `i` of a product; the inputs are equally wide.
  uint8_t *quantized(const linnet_matrix *a, int64_t i) const { return (uint8_t *)b.q + i * quantized_bytes(a->in); }

  // Quantize the rows of input `i` if the matrix is int8.
  void quantize(const linnet_matrix *a, const float *x, int64_t stride, Range s, int64_t i = 0) const {
    if (a->kind != LINNET_INT8 || !a->out) return;
    for (int64_t r = s.from; r < s.to; ++r) {
      float scale;
      quantize_row(x + r * stride, a->in, quantized(a, i) + r * w.quantized * 4, &scale);
      b.scale[i * rows + r] = scale;
    }
  }

  // Panels p of y = A x, where x is input `i`.
  void panels(const linnet_matrix *a, const float *x, int64_t x_stride, float *y, int64_t y_stride, Range p,
              int64_t i = 0) const {
    const float *scale = b.scale + i * rows;
    matmul(a, x, x_stride, quantized(a, i), w.quantized * 4, scale, y, y_stride, rows, p.from, p.to);
  }

  // This thread's panels of y = A x, in units of `unit` panels.
  Range product(const linnet_matrix *a, const float *x, int64_t x_stride, float *y, int64_t y_stride,
               int64_t unit = 1) const {
    const Range p = share(team, (a->out + 31) / 32, unit);
    panels(a, x, x_stride, y, y_stride, p);
    return {p.from * 32, p.to * 32 < a->out ? p.to * 32 : a->out};
  }

  // Wait for the team, and prefetch this thread's first panels of `a`.
  void wait_before(const linnet_matrix *a, int64_t unit = 1) const {
    if (team.size == 1 || !a->out) return team.wait();
    const int64_t each = a->kind == LINNET_BFLOAT16 ? 64 : 128;  // bytes of a panel for one input, or four of int8
    const int64_t panel = (a->kind == LINNET_INT8 ? (a->in + 3) / 4 : a->in) * each;
    const Range p = share(team, (a->out + 31) / 32, unit);
    team.wait((const char *)a->w + p.from * panel, (p.to - p.from) * panel);
  }

  // q and k of a row, [(H + K) D], normed and turned to its position if the layer does that.
  const float *turned(const linnet_layer *l, const float *x, float *to, int64_t r) const {
    if (!l->turns && !l->q_norm) return x;
    const int64_t D = l->key;
    for (int64_t h = 0; h < l->heads + l->kv_heads; ++h) {
      const float *from = x + h * D;
      float *y = to + h * D;
      if (l->q_norm) {
        normalize<true>(y, from, h < l->heads ? l->q_norm : l->k_norm, nullptr, D, l->qk_eps, nullptr);
        from = y;
      }
      if (l->turns) turn_head(y, from, b.waves + r * w.waves, D);
    }
    return to;
  }

  // What a norm over all key-value heads needs: of q for each query of a group, and of k.
  void joint(const linnet_layer *l, const float *qk, Moments *of) const {
    const int64_t K = l->kv_heads, G = l->heads / K, D = l->key;
    if (l->q_map.norm == 2)
      for (int64_t g = 0; g < G; ++g) of[g] = moments(qk + g * D, K, G * D, D, l->q_map.eps);
    if (l->k_map.norm == 2) of[G] = moments(qk + l->heads * D, K, D, D, l->k_map.eps);
  }

  void attend(const linnet_layer *l) const {
    const int64_t H = l->heads, K = l->kv_heads, G = H / K, D = l->key, V = l->value;
    Moments *of = (Moments *)own;  // G + 1 of them
    float *turns = own + round_up(2 * (G + 1), 16), *rest = turns + round_up((H + K) * D, 16);
    const float *qk = nullptr;
    int64_t known = -1;
    const Range s = share(team, rows * K);
    for (int64_t task = s.from; task < s.to; ++task) {
      const int64_t r = task / K, h = task % K;
      const float *row = b.big + r * w.big;
      if (known != r) {
        known = r;
        qk = turned(l, row, turns, r);
        if (l->mixer == LINNET_LINEAR) joint(l, qk, of);
      }
      const float *q = qk + h * G * D, *k = qk + (H + h) * D, *v = row + (H + K) * D + h * V;
      float *out = b.mixed + r * w.mixed + h * G * V;
      if (l->mixer == LINNET_LINEAR)
        linear(l, r, h, q, k, v, out, of, rest);
      else
        softmax(l, r, h, q, k, v, out, rest);
      if (l->gate_heads) {
        const float *gate = row + (H + K) * D + K * V + h * G * V;
        along(G * V, [&](int64_t i, auto n) { n.put(out + i, n.get(out + i) * sigmoid(n.get(gate + i))); });
      }
    }
  }

  void linear(const linnet_layer *l, int64_t r, int64_t h, const float *q, const float *k, const float *v, float *out,
              const Moments *of, float *rest) const {
    const int64_t G = l->heads / l->kv_heads, D = l->key, V = l->value, F = l->features;
    float *s = state(l, r) + h * F * V, *z = state(l, r) + l->kv_heads * F * V + h * F;
    float *fk = rest, *fq = fk + F, *room = fq + G * F;
    head_features(&l->k_map, fk, k, h, of[G], room);
    for (int64_t g = 0; g < G; ++g) head_features(&l->q_map, fq + g * F, q + g * D, h, of[g], room);
    const int64_t apart = l->kv_heads * F * (V + 1);
    (l->exact ? linear_head<true> : linear_head<false>)(s, z, apart, fq, fk, v, out, G, F, V, l->eps);
  }

  void softmax(const linnet_layer *l, int64_t r, int64_t h, const float *q, const float *k, const float *v, float *out,
               float *p) const {
    const int64_t K = l->kv_heads, G = l->heads / K, D = l->key, V = l->value, t = position(r);
    const bool window = l->mixer == LINNET_WINDOW;
    const int64_t room = window ? round_up(l->window, 16) : c->capacity[slot(r)];
    const int64_t place = window ? t % l->window : t, n = window && t >= l->window ? l->window : t + 1;
    float *base = window ? state(l, r) : c->cache[slot(r)] + l->cache * K * room * (D + V);
    float *keys = base + h * room * D, *values = base + K * room * D + h * room * V;
    put_key(keys, k, place, D);
    memcpy(values + place * V, v, V * sizeof(float));
    for (int64_t g = 0; g < G; ++g) softmax_head(out + g * V, q + g * D, keys, values, n, D, V, (float)l->scale, p);
  }

  // conv: y = conv(n) * gate + n.
  void conv(const linnet_layer *l) const {
    const Range s = share(team, l->channels, 16);
    for (int64_t r = 0; r < rows && s.from < s.to; ++r) {
      const float *n = b.n + r * w.x, *gate = b.big + r * w.big;
      float *y = b.y + r * w.x;
      conv_channels(l, state(l, r), n, y, position(r), s.from, s.to);
      along(s.to - s.from, [&](int64_t i, auto v) {
        const int64_t at = s.from + i;
        v.put(y + at, v.get(n + at) + v.get(y + at) * v.get(gate + at));
      });
    }
  }

  // Columns [from, to) of a projection are in big: u = silu(conv(u)) for those that are channels.
  void convolve_columns(const linnet_layer *l, Range s) const {
    const int64_t end = s.to < l->channels ? s.to : l->channels;
    for (int64_t r = 0; r < rows && s.from < end; ++r) {
      float *u = b.big + r * w.big;
      conv_channels(l, state(l, r) + l->past, u, u, position(r), s.from, end);
      along(end - s.from, [&](int64_t i, auto v) { v.put(u + s.from + i, silu(v.get(u + s.from + i))); });
    }
  }

  // Call f(r, from, to) for the heads of each row that are this thread's.
  template <class F>
  void each_head(const linnet_layer *l, F f) const {
    const int64_t H = l->heads;
    const Range s = share(team, rows * H);
    for (int64_t r = s.from / H; s.from < s.to && r * H < s.to; ++r)
      f(r, larger(s.from - r * H, 0), s.to - r * H < H ? s.to - r * H : H);
  }

  // q, k, v and more in big, through the state, to mixed: see gated_step.h.
  void gated(const linnet_layer *l) const {
    each_head(l, [&](int64_t r, int64_t from, int64_t to) {
      gated_heads(l, state(l, r), b.big + r * w.big, b.waves + r * w.waves, b.mixed + r * w.mixed, own, from, to);
    });
  }

  // dt, b and c of a row, each divided by its root mean square if the layer normalises them.
  const float *selected(const linnet_layer *l, const float *given) const {
    const int64_t N = l->scan.numbers, rank = l->scan.widen.in, starts[4] = {0, rank, rank + N, rank + 2 * N};
    if (l->scan.norm_eps == 0) return given;
    for (int64_t i = 0; i < 3; ++i)
      normalize<true>(own + starts[i], given + starts[i], nullptr, nullptr, starts[i + 1] - starts[i], l->scan.norm_eps,
                      nullptr);
    return own;
  }

  // u and z are in big, u through its convolution: dt, b and c from all of u, then the scan. See scan_step.h.
  void scan(const linnet_layer *l) const {
    const int64_t C = l->channels, N = l->scan.numbers, rank = l->scan.widen.in;
    const Range p = share(team, (l->scan.select.out + 31) / 32), s = share(team, C, 32);
    for (int64_t r = 0; r < rows; ++r)
      small_product(&l->scan.select, b.big + r * w.big, b.big + r * w.big + 2 * C, p.from, p.to);
    team.wait();
    for (int64_t r = 0; r < rows && s.from < s.to; ++r) {
      const float *u = b.big + r * w.big, *given = selected(l, u + 2 * C);
      float *y = b.mixed + r * w.mixed;
      columns_of(&l->scan.widen, given, y, s.from, s.to);
      scan_channels(l, state(l, r), u, u + C, given + rank, given + rank + N, y, s.from, s.to);
    }
  }

  // RWKV: the mixtures of n with the token before it, and their products, in big.
  void project_mixtures(const linnet_layer *l) const {
    const Mixtures mixtures(l);
    const Range mine = my_rows();
    const int64_t E = m->width;
    for (int64_t r = mine.from; r < mine.to; ++r)
      mix_with_past(l, b.wide + r * w.wide, b.n + r * w.x, state(l, r) + l->past, E);
    for (int64_t i = 0; i < QUANTIZED; ++i) quantize(mixtures.a[i], b.wide + i * E, w.wide, mine, i);
    row_wait();
    const Range p = share(team, mixtures.at[MIXTURES] / 32);  // the panels of all matrices, one after another
    for (int64_t i = 0; i < MIXTURES; ++i) {
      const int64_t start = mixtures.at[i] / 32, end = mixtures.at[i + 1] / 32;
      const Range part = {larger(p.from, start) - start, (p.to < end ? p.to : end) - start};
      const float *x = b.wide + i * E;
      float *y = b.big + mixtures.at[i];
      if (i < QUANTIZED)
        panels(mixtures.a[i], x, w.wide, y, w.big, part, i);
      else
        for (int64_t r = 0; r < rows; ++r) small_product(mixtures.a[i], x + r * w.wide, y + r * w.big, part.from, part.to);
    }
  }

  // RWKV: the recurrence of the products in big, to mixed; n becomes the token before the next one. See rwkv_step.h.
  void rwkv(const linnet_layer *l) const {
    const Range s = share(team, m->width, 16);
    for (int64_t r = 0; r < rows && s.from < s.to; ++r) {
      memcpy(state(l, r) + l->past + s.from, b.n + r * w.x + s.from, (s.to - s.from) * sizeof(float));
      if (l->mixer == LINNET_WKV4)
        wkv4_channels(l, state(l, r), b.big + r * w.big, b.mixed + r * w.mixed, s.from, s.to);
    }
    if (l->mixer == LINNET_CHANNEL_MIX) {
      const Range hidden = share(team, l->channels, 16);
      for (int64_t r = 0; r < rows; ++r) squared_relu(b.big + r * w.big, b.mixed + r * w.mixed, hidden.from, hidden.to);
    }
    if (l->mixer != LINNET_WKV7) return;
    each_head(l, [&](int64_t r, int64_t from, int64_t to) {
      float *first = b.first + r * w.first;
      wkv7_heads(l, state(l, r), b.big + r * w.big, first, b.mixed + r * w.mixed, own, from, to);
    });
  }

  // gated: mixed = silu(conv(u1)) * u2.
  void gated_conv(const linnet_layer *l) const {
    const Range s = share(team, l->channels, 16);
    for (int64_t r = 0; r < rows && s.from < s.to; ++r) {
      const float *u = b.big + r * w.big;
      float *y = b.mixed + r * w.mixed;
      conv_channels(l, state(l, r), u, y, position(r), s.from, s.to);
      along(s.to - s.from, [&](int64_t i, auto v) {
        const int64_t at = s.from + i;
        const vf a = v.get(y + at);
        v.put(y + at, a * sigmoid(a) * v.get(u + l->channels + at));
      });
    }
  }

  // Columns [from, to) of `up` are in big: their activation, in mixed.
  void activate_columns(const linnet_layer *l, Range s) const {
    for (int64_t r = 0; r < rows; ++r) {
      const float *x = b.big + r * w.big;
      float *y = b.mixed + r * w.mixed;
      if (l->mlp == ACT_RELU)
        along(s.to - s.from, [&](int64_t i, auto v) { v.put(y + s.from + i, max_(v.get(x + s.from + i), 0.0f)); });
      if (l->mlp == ACT_GELU)
        along(s.to - s.from, [&](int64_t i, auto v) { v.put(y + s.from + i, gelu(v.get(x + s.from + i), nullptr)); });
      if (l->mlp != ACT_SWIGLU) continue;
      for (int64_t at = s.from; at < s.to; at += 64) {  // 32 gates, 32 values
        const int64_t n = l->hidden - at / 2 < 32 ? l->hidden - at / 2 : 32;
        along(n, [&](int64_t i, auto v) {
          const vf g = v.get(x + at + i);
          v.put(y + at / 2 + i, g * sigmoid(g) * v.get(x + at + 32 + i));
        });
      }
    }
  }

  // x += y, normed after the sum in a post-norm model.
  void add(const float *y, const float *weight, const float *bias, double eps) const {
    const Range s = my_rows();
    for (int64_t r = s.from; r < s.to; ++r) {
      float *x = b.x + r * w.x;
      along(m->width, [&](int64_t i, auto v) { v.put(x + i, v.get(x + i) + v.get(y + r * w.x + i)); });
      if (!m->pre) norm(x, x, weight, bias, eps);
    }
  }

  // n = what the next branch reads: x, normed if `normed`; quantized too if `a` is int8.
  void branch(const linnet_matrix *a, bool normed, const float *weight, const float *bias, double eps) const {
    const Range s = my_rows();
    for (int64_t r = s.from; r < s.to; ++r) {
      if (normed)
        norm(b.n + r * w.x, b.x + r * w.x, weight, bias, eps);
      else
        memcpy(b.n + r * w.x, b.x + r * w.x, m->width * sizeof(float));
    }
    if (!a) return;
    quantize(a, b.n, w.x, s);
    row_wait();
  }

  // Everything up to the projections of a mixer, in big.
  void project(const linnet_layer *l) const {
    branch(is_rwkv(l) ? nullptr : &l->in, m->pre, l->norm1, l->bias1, l->norm_eps);
    if (is_rwkv(l)) return project_mixtures(l);
    const Range s = product(&l->in, b.n, w.x, b.big, w.big);
    if (l->mixer == LINNET_GATED || l->mixer == LINNET_SCAN) convolve_columns(l, s);
  }

  void mix(const linnet_layer *l, const linnet_matrix *next) const {
    project(l);
    wait_before(&l->out);
    if (l->mixer == LINNET_CONV) {
      conv(l);
      wait_before(&l->up);
      return;
    }
    if (l->mixer == LINNET_GATED_CONV)
      gated_conv(l);
    else if (l->mixer == LINNET_GATED)
      gated(l);
    else if (l->mixer == LINNET_SCAN)
      scan(l);
    else if (is_rwkv(l))
      rwkv(l);
    else
      attend(l);
    wait_before(&l->out);
    project_back(&l->out, l->mlp >= 0 ? &l->up : next, l->gated.joint ? l : nullptr,
                 l->mixer == LINNET_CHANNEL_MIX && l->rwkv.k.out ? Mixtures(l).at[1] : -1);
  }

  // y = A mixed, or A times the joint norm of that, which each thread computes for its rows; times the sigmoid of what
  // begins at `gate` in big.
  void project_back(const linnet_matrix *a, const linnet_matrix *next, const linnet_layer *normed = nullptr,
                    int64_t gate = -1) const {
    const Range s = my_rows();
    const float *x = normed ? b.wide : b.mixed;
    const int64_t stride = normed ? w.wide : w.mixed;
    for (int64_t r = s.from; normed && r < s.to; ++r) joint_norm(normed, b.wide + r * w.wide, b.mixed + r * w.mixed);
    quantize(a, x, stride, s);
    if (normed || a->kind == LINNET_INT8) row_wait();
    const Range p = product(a, x, stride, b.y, w.x);
    for (int64_t r = 0; gate >= 0 && r < rows; ++r) {
      float *y = b.y + r * w.x + p.from;
      const float *by = b.big + r * w.big + gate + p.from;
      along(p.to - p.from, [&](int64_t i, auto v) { v.put(y + i, v.get(y + i) * sigmoid(v.get(by + i))); });
    }
    wait_before(next);
  }

  void mlp(const linnet_layer *l, const linnet_matrix *next) const {
    branch(&l->up, m->pre, l->norm2, l->bias2, l->norm_eps);
    if (l->mlp == LINNET_IDENTITY_MLP) return;
    const Range s = product(&l->up, b.n, w.x, b.big, w.big, l->mlp == ACT_SWIGLU ? 2 : 1);
    activate_columns(l, s);
    wait_before(&l->down);
    project_back(&l->down, next);
  }

  void run() const {
    enter();
    for (int64_t i = 0; i < m->n_layers; ++i) {
      const linnet_layer *l = m->layers + i;
      const linnet_matrix *next = i + 1 < m->n_layers ? &l[1].in : &m->head;
      mix(l, next);
      add(b.y, l->norm1, l->bias1, l->norm_eps);
      if (l->mlp == LINNET_NO_MLP) continue;
      mlp(l, next);
      add(l->mlp == LINNET_IDENTITY_MLP ? b.n : b.y, l->norm2, l->bias2, l->norm_eps);
    }
    branch(&m->head, m->last != nullptr, m->last, m->last_bias, m->norm_eps);
    product(&m->head, b.n, w.x, c->out + first * m->head.out, m->head.out);
  }
};

constexpr int64_t OWN_ROWS = 32;  // with this many rows for each thread, threads run independently

void decode_part(const linnet_decode *c, const linnet_model *m, int64_t rank, int64_t threads) {
  const Widths w = widths_of(m, c->longest);
  Gate *gate = (Gate *)c->scratch;
  const bool apart = c->B >= OWN_ROWS * threads;
  const Range mine = apart ? share({gate, rank, threads}, c->B) : Range{0, c->B};
  if (mine.from == mine.to) return;
  float *p = (float *)((char *)c->scratch + GATE);
  Buffers all;
  all.x = take(&p, c->B * w.x) + mine.from * w.x;
  all.n = take(&p, c->B * w.x) + mine.from * w.x;
  all.y = take(&p, c->B * w.x) + mine.from * w.x;
  all.big = take(&p, c->B * w.big) + mine.from * w.big;
  all.mixed = take(&p, c->B * w.mixed) + mine.from * w.mixed;
  all.wide = take(&p, c->B * w.wide) + mine.from * w.wide;
  all.first = take(&p, c->B * w.first) + mine.from * w.first;
  all.q = take(&p, c->B * w.quantized) + mine.from * w.quantized;
  all.waves = take(&p, c->B * w.waves) + mine.from * w.waves;
  all.scale = take(&p, c->B * 16) + mine.from * 16;
  p += rank * thread_floats(w);
  float *own = take(&p, w.own);
  const bool alone = !apart && c->B == 1 && threads > 1;
  if (alone) {
    all.x = take(&p, w.x);
    all.n = take(&p, w.x);
    all.wide = take(&p, w.wide);
    all.q = take(&p, w.quantized);
    all.waves = take(&p, w.waves);
    all.scale = take(&p, 16);
  }
  const Team team = apart ? Team{gate, 0, 1} : Team{gate, rank, threads};
  Decoder{c, m, team, w, all, own, mine.from, mine.to - mine.from, alone}.run();
}

int decode(const linnet_decode *c, const linnet_model *m) {
  memset(c->scratch, 0, sizeof(Gate));
#ifdef _OPENMP
  int want = omp_in_parallel() ? 1 : (int)c->threads;
  linnet_notice(want);
  if (linnet_busy() && c->B < OWN_ROWS * want) want = 1;  // a team waits at every phase for the one without a core
#pragma omp parallel num_threads(want) if (want > 1)
  decode_part(c, m, omp_get_thread_num(), omp_get_num_threads());
#else
  decode_part(c, m, 0, 1);
#endif
  for (int64_t r = 0; r < c->B; ++r) ++c->positions[c->slots[r]];
  return LINNET_OK;
}

}  // namespace
