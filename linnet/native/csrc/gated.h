// Linear attention whose state decays, and from which a token may erase before it adds:
//
//     S_t = (Diag(e^g_t) - b_t h_t^T) S_{t-1} + k_t v_t^T,   out_t = S_t^T q_t            g <= 0
//
// In a chunk every token is a reader of what was written before it, or a writer, or both. G is the sum of g so far:
//
//     reads    q: out_t = (q_t e^G_t) S + sum_{j<=t} (q_t . e^{G_t - G_j} x_j) w_j      S: state before the chunk
//              h: u_t   = (h_t e^G_t) S + sum_{j<t}  (h_t . e^{G_t - G_j} x_j) w_j
//     writes   S' = e^G_C S + sum_j (e^{G_C - G_j} x_j) w_j^T                           x_j = k_j or b_j, w_j its value
//
//     PLAIN    k writes v                            RetNet, GLA, Mamba-2
//     DELTA    k writes beta (v - u), h = k          delta, gated delta, KDA
//     REMOVAL  k writes v, b = rate h writes -u, and h reads before the decay, e^G_{t-1}         RWKV-7
//
// What an eraser writes solves a triangular system. e^{G_t - G_j} is taken as e^G_t e^-G_j where all of G is above
// GENTLE in the chunk, which costs one exponential each; elsewhere (steep chunks) for each pair, with exponents <= 0.
#pragma once
#include "linnet.h"
#include "gated_tile.h"

#include <math.h>
#include <stdlib.h>

namespace {

enum Rule { PLAIN = 0, DELTA = 1, REMOVAL = 2 };
enum Fault { NOT_FINITE = 1, GROWS = 2, BETA = 4, LONG_KEY = 8, RATE = 16 };
enum Reader { Q = 0, H = 1 };
enum Writer { K = 0, B = 1 };

constexpr float GENTLE = -40.0f;       // e^40 times any number of normal size is finite
constexpr float FORGOTTEN = -100.0f;  // a decay below this is taken as this: nothing is left either way
constexpr float LONGEST = 1.02f;      // |key|^2 of a key of length 1 that was rounded to bfloat16
constexpr int64_t SEGMENT = 8;        // chunks between states that are kept for the backward pass

struct Gated {  // the call; what forward or backward does not have is 0
  float *out, *s_out, *kept;
  int64_t *faults;
  const float *q, *k, *v, *decay, *beta, *erase, *rate;
  const uint8_t *mask;
  const int64_t *cu;
  const float *s0, *g, *gs;
  float *dq, *dk, *dv, *ddecay, *dbeta, *derase, *drate, *ds0;
  int64_t S, B, T, H, D, V, G, rule, slots, floats, threads;
  linnet_strides q_strides, k_strides, v_strides, decay_strides, beta_strides, erase_strides, rate_strides, g_strides;
  bool channels;      // a decay per channel, or as if: the eraser of RWKV-7 reads before its token decays, unlike HEAD
  bool stream;        // outputs past the caches: whole lines, and more of them than the caches hold
  int64_t nb, P, nS;  // blocks of 16 key channels; panels of 16 value columns; floats of a state, [P][16 nb][16]
  int readers, writers;
};

void complete(Gated &a) {
  a.nb = (a.D + 15) / 16;
  a.P = (a.V + 15) / 16;
  a.nS = a.P * a.nb * 256;
  a.channels = a.G > 1 || a.rule == REMOVAL;
  const float *first = a.out ? a.out : a.dv;
  a.stream = a.V % 16 == 0 && (uintptr_t)first % 64 == 0 && a.B * a.T * a.H * a.V > 1 << 18;
  a.stream = a.stream && (a.out || a.D % 16 == 0);
  a.readers = a.rule == PLAIN ? 1 : 2;
  a.writers = a.rule == REMOVAL ? 2 : 1;
}

#define COPY(type, name) a.name = (decltype(a.name))c->name;

Gated gated_call(const linnet_gated_forward_call *c) {
  Gated a = {};
  LINNET_FIELDS_gated_forward(COPY)
  complete(a);
  return a;
}

Gated gated_call(const linnet_gated_backward_call *c) {
  Gated a = {};
  LINNET_FIELDS_gated_backward(COPY)
  complete(a);
  return a;
}

#undef COPY

struct Sequence {  // number, batch row and tokens [t0, t1) of it
  int64_t at, b, t0, t1;
};

Sequence sequence(const Gated *c, int64_t at) {
  if (c->cu) return {at, 0, c->cu[at], c->cu[at + 1]};
  return {at, at, 0, c->T};
}

// Where the states of a sequence are kept: one before each SEGMENT chunks. Sequences never share a slot.
INLINE int64_t first_slot(const Gated *c, const Sequence &x) {
  return (c->cu ? x.t0 : x.at * c->T) / (SEGMENT * C) + x.at;
}

#define ROWS(name, tensor, strides)                                                   \
  INLINE Rows name(const Gated *c, const Sequence &x, int64_t h, int64_t t) {         \
    return {c->tensor + x.b * c->strides.b + t * c->strides.t + h * c->strides.h, c->strides.t}; \
  }
ROWS(gated_q, q, q_strides)
ROWS(gated_k, k, k_strides)
ROWS(gated_v, v, v_strides)
ROWS(gated_g, g, g_strides)
ROWS(gated_decay, decay, decay_strides)
ROWS(gated_beta, beta, beta_strides)
ROWS(gated_erase, erase, erase_strides)
ROWS(gated_rate, rate, rate_strides)
#undef ROWS

// ---- the state of a head: panels [P][16 nb][16] in a task, [D][V] outside

void panels_in(const Gated *c, float *S, const float *from) {
  memset(S, 0, c->nS * sizeof(float));
  for (int64_t p = 0; from && p < c->P; ++p) {
    const int64_t width = c->V - p * 16 < 16 ? c->V - p * 16 : 16;
    for (int64_t d = 0; d < c->D; ++d)
      memcpy(S + (p * c->nb * 16 + d) * 16, from + d * c->V + p * 16, width * sizeof(float));
  }
}

void panels_out(const Gated *c, float *to, const float *S) {
  for (int64_t p = 0; p < c->P; ++p) {
    const int64_t width = c->V - p * 16 < 16 ? c->V - p * 16 : 16;
    for (int64_t d = 0; d < c->D; ++d)
      memcpy(to + d * c->V + p * 16, S + (p * c->nb * 16 + d) * 16, width * sizeof(float));
  }
}

// ---- memory read in order: a task has several heads, and goes through them block of tokens by block of tokens; while a
// block is worked on, the next one is brought near

constexpr int64_t MOST_HEADS = 8, NEAR_BYTES = 400 << 10;  // of a task, so that two blocks fit the second-level cache

int64_t token_floats(const Gated *c, bool grads) {  // read per token and head
  return (2 + c->channels + 2 * (c->rule == REMOVAL)) * c->D + (1 + grads) * c->V;
}

// Heads of a task; 1 where heads lie further apart than tokens. Every thread has tasks.
int64_t heads_of_task(const Gated *c, int64_t tokens, bool grads) {
  int64_t heads = 1;
  if (c->q_strides.h > c->q_strides.t || c->k_strides.h > c->k_strides.t || c->v_strides.h > c->v_strides.t) return 1;
  while (heads * 2 <= MOST_HEADS && heads * 2 <= c->H && c->S * c->H >= heads * 2 * c->threads &&
         heads * 2 * tokens * token_floats(c, grads) * 4 <= NEAR_BYTES)
    heads *= 2;
  return heads;
}

struct Heads {
  int64_t from, to;
};

// The tokens to bring near, divided evenly over `parts` calls of `start`, and those of a call over the products of its
// chunk: those with a state before it, and those with the state after it.
struct Near {
  Ahead ahead;
  int64_t t, each, end;

  void plan(int64_t from, int64_t to, int64_t parts) {
    t = from;
    end = to;
    each = parts > 0 ? (to - from + parts - 1) / parts : 0;
  }

  void start(const Gated *c, const Sequence &x, const Heads &heads, bool grads) {
    ahead.clear(end - t < each ? end - t : each);
    if (ahead.tokens < 1) return;
    const int64_t h = heads.from, more = heads.to - heads.from - 1;
    ahead.add(gated_q(c, x, h, t), more * c->q_strides.h + c->D);
    ahead.add(gated_k(c, x, h, t), more * c->k_strides.h + c->D);
    ahead.add(gated_v(c, x, h, t), more * c->v_strides.h + c->V);
    if (c->channels) ahead.add(gated_decay(c, x, h, t), more * c->decay_strides.h + c->D);
    if (c->rule == REMOVAL) ahead.add(gated_erase(c, x, h, t), more * c->erase_strides.h + c->D);
    if (c->rule == REMOVAL) ahead.add(gated_rate(c, x, h, t), more * c->rate_strides.h + c->D);
    if (grads) ahead.add(gated_g(c, x, h, t), more * c->g_strides.h + c->V);
    ahead.pace(2 * c->nb * (c->P / PAIR * (PAIR > 1 ? 2 : TILES) + c->P % PAIR * TILES));
    ahead.start();
    t += ahead.tokens;
  }
};

// ---- scratch: one allocation for a thread

constexpr int64_t APART = 48;  // floats between parts: arrays a multiple of 4 KiB apart share cache sets

struct Arena {
  float *p = nullptr;
  int64_t used = 0;

  float *take(int64_t n) {  // 64-byte aligned
    float *at = p ? p + used : nullptr;
    used += (n + 15) / 16 * 16 + APART;
    return at;
  }
};

}  // namespace
