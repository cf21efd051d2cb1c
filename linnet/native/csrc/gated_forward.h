// Forward of the gated family: the pairs of a chunk, then panel by panel what is erased, the outputs, the next state.
#pragma once
#include "steep.h"

namespace {

// Keep writers up to the reader (q) or before it (h), times L if there is one decay per head.
void keep_past(float *A, const Chunk &x, int reader) {
  vi lane;
  for (int n = 0; n < VL; ++n) lane[n] = n;
  const int most = reader == Q ? 0 : -1;
  for (int i = 0; i < C; ++i)
    for (int n = 0; n < NT; ++n) {
      float *at = A + i * C + n * VL;
      const vf weight = x.fade == HEAD ? load(at) * load(x.L + i * C + n * VL) : load(at);
      store(at, (vf)((vi)weight & (lane + n * VL <= i + most)));
    }
}

// The weights of all pairs of reader and writer.
void pair_scores(const Gated *c, Chunk &x, bool queries) {
  for (int i = 0; i < c->writers && x.fade != STEEP; ++i) transpose(x.metT[i], x.met[i], c->nb);
  for (int r = queries ? Q : H; r < c->readers; ++r)
    for (int i = 0; i < c->writers; ++i) {
      if (x.fade == STEEP)
        steep_scores(c, x, x.A[r][i], x.x[r], x.w[i], r == H && c->rule == REMOVAL);
      else
        scores<16, 1>(x.A[r][i], x.meet[r], x.metT[i], c->nb);
      keep_past(x.A[r][i], x, r);
    }
}

// x_t -= sum_{j<t} A[t][j] f_j x_j for the 16 rows of a panel, in order; f: beta, or null for 1.
void solve(float *rows, const float *A, const float *beta) {
  float scaled[256];
  for (int t = 0; t < C && beta; ++t)
    for (int n = 0; n < NT; ++n) store(scaled + t * C + n * VL, load(A + t * C + n * VL) * load(beta + n * VL));
  const float *a = beta ? scaled : A;
  for (int n = 0; n < NT; ++n) {
    vf x[C];
    UNROLL(16) for (int t = 0; t < C; ++t) x[t] = load(rows + t * 16 + n * VL);
    UNROLL(16) for (int j = 0; j < C; ++j)
      UNROLL(16) for (int t = j + 1; t < C; ++t) x[t] -= a[t * C + j] * x[j];
    UNROLL(16) for (int t = 0; t < C; ++t) store(rows + t * 16 + n * VL, x[t]);
  }
}

// What the eraser writes into some panels: x of DELTA (times beta it is written), or -u of RWKV-7; from S before the chunk (null: zero).
void erased(const Gated *c, const Chunk &x, Ahead &ahead, float *rows, const float *v, const float *S, int64_t panels) {
  const Term mixed = c->rule == REMOVAL ? Term{x.A[H][K], v} : Term{};
  lookup({{rows, 0, 16, 16, false}, 1, {mixed, {}}, x.past[H], S, S ? c->nb : 0, c->nb * 256, &ahead}, panels);
  for (int64_t p = 0; p < panels; ++p, rows += 256, v += 256) {
    for (int i = 0; i < 256; i += VL) store(rows + i, (c->rule == DELTA ? load(v + i) : (vf){}) - load(rows + i));
    solve(rows, x.A[H][c->rule == DELTA ? K : B], c->rule == DELTA ? x.beta : nullptr);
  }
}

// The values of the writers in some panels: v, or beta times what was solved (in `room`), and -u.
struct Values {
  const float *of[2];
};

Values values_of(const Gated *c, const Chunk &x, const float *v, const float *solved, float *room, int64_t panels) {
  if (c->rule == PLAIN) return {{v, nullptr}};
  if (c->rule == REMOVAL) return {{v, solved}};
  multiply_rows(room, solved, x.beta, panels);
  return {{room, nullptr}};
}

// Panels of the state after the chunk, from those before it; they may be the same.
void carry_panels(const Gated *c, const Chunk &x, Ahead &ahead, float *to, const float *from, const Values &w, int64_t panels) {
  for (int64_t b = 0; b < c->nb; ++b) {
    const float *second = c->writers > 1 ? x.last[B] + b * 256 : nullptr, *fade = x.fade == FLAT ? nullptr : x.whole + b * 16;
    carry({to + b * 256, from + b * 256, fade, {x.last[K] + b * 256, second}, {w.of[K], w.of[B]}, c->nb * 256, &ahead}, panels);
  }
}

// body(p, panels) for all panels, as many at a time as the tiles take.
template <class Body>
INLINE void each_panels(const Gated *c, Body body) {
  int64_t p = 0;
  for (; p + PAIR <= c->P; p += PAIR) body(p, (int64_t)PAIR);
  for (; p < c->P; ++p) body(p, (int64_t)1);
}

INLINE int64_t columns_left(const Gated *c, int64_t p, int64_t panels) {
  return c->V - p * 16 < panels * 16 ? c->V - p * 16 : panels * 16;
}

struct ForwardScratch {
  Chunk x;
  Near near;
  float *S,  // of each head of the task
       *v, *solved, *room;
  bool live[MOST_HEADS];  // false: the state of a head is still zero, and reading it can be skipped
};

void forward_room(const Gated *c, int64_t heads, Arena &a, ForwardScratch &w) {
  chunk_room(c, a, w.x);
  w.S = a.take(heads * c->nS);
  w.v = a.take(c->P * 256);
  w.solved = a.take(PAIR * 256), w.room = a.take(PAIR * 256);
}

// `head`: of the task; `keep`: something comes after the chunk.
void forward_chunk(const Gated *c, ForwardScratch &w, int64_t head, const Sequence &seq, int64_t h, int64_t t,
                   bool keep, int64_t &faults) {
  Chunk &x = w.x;
  float *state = w.S + head * c->nS;
  const bool live = w.live[head];
  load_chunk(c, x, seq, h, t, true, &faults);
  if (!load_values(w.v, gated_v(c, seq, h, t), c->V, x.valid)) faults |= NOT_FINITE;
  pair_scores(c, x, true);
  each_panels(c, [&](int64_t p, int64_t panels) {
    float *S = state + p * c->nb * 256;
    const float *v = w.v + p * 256;
    if (c->rule != PLAIN) erased(c, x, w.near.ahead, w.solved, v, live ? S : nullptr, panels);
    const Values values = values_of(c, x, v, w.solved, w.room, panels);
    float *out = c->out + ((seq.b * c->T + t) * c->H + h) * c->V + p * 16;
    const RowsOut o = {out, c->H * c->V, x.n, columns_left(c, p, panels), c->stream};
    const Term own = {x.A[Q][K], values.of[K]}, other = c->writers > 1 ? Term{x.A[Q][B], values.of[B]} : Term{};
    lookup({o, 1, {own, other}, x.past[Q], S, live ? c->nb : 0, c->nb * 256, &w.near.ahead}, panels);
    if (keep) carry_panels(c, x, w.near.ahead, S, S, values, panels);
  });
  w.live[head] = true;
}

constexpr int64_t FORWARD_BYTES = 100 << 10;  // of one block: what is brought near is used soon

// A block is a segment, or as much of it as may be near; the first is one chunk, since nothing brought it near.
void forward_heads(const Gated *c, ForwardScratch &w, const Sequence &seq, const Heads &heads, int64_t &faults) {
  const int64_t count = heads.to - heads.from;
  int64_t fit = FORWARD_BYTES / (4 * C * count * token_floats(c, false)), size = 1;
  const int64_t most = fit < 1 ? 1 : fit > SEGMENT ? SEGMENT : fit;
  const auto state = [&](int64_t h) { return (seq.at * c->H + h) * c->D * c->V; };
  for (int64_t i = 0; i < count; ++i) {
    panels_in(c, w.S + i * c->nS, c->s0 ? c->s0 + state(heads.from + i) : nullptr);
    w.live[i] = c->s0;
  }
  for (int64_t t = seq.t0, next; t < seq.t1; t = next, size = size * 2 < most ? size * 2 : most) {
    next = t + size * C < seq.t1 ? t + size * C : seq.t1;
    const int64_t after = size * 2 < most ? size * 2 : most;
    w.near.plan(next, next + after * C < seq.t1 ? next + after * C : seq.t1, count * size);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t h = heads.from + i;
      for (int64_t at = t; at < next; at += C) {
        if (c->kept && (at - seq.t0) % (SEGMENT * C) == 0)
          memcpy(c->kept + ((first_slot(c, seq) + (at - seq.t0) / (SEGMENT * C)) * c->H + h) * c->nS, w.S + i * c->nS,
                 c->nS * sizeof(float));
        w.near.start(c, seq, heads, false);
        forward_chunk(c, w, i, seq, h, at, c->s_out || at + C < seq.t1, faults);
      }
    }
  }
  for (int64_t i = 0; i < count && c->s_out; ++i) panels_out(c, c->s_out + state(heads.from + i), w.S + i * c->nS);
}

}  // namespace
