// What a task of linear attention holds: the call, scratch memory, the state of each stream, the order of the sweep.
//
// A stream is one head of one sequence. Its state S is kept in panels of 16 columns, [V/16][F][16], which is how the
// tiles read it; import_state and export_state turn the tensors [F][V] of the caller into panels and back.
#pragma once
#include "linnet.h"
#include "tile_io.h"

#include <math.h>
#include <stdlib.h>

namespace {

// The call, whichever of the three it is: forward, backward and step fill in their own fields and leave the others 0.
struct Attention {
  float *out, *inv, *s_out, *z_out;
  const float *q, *k, *v;
  const uint8_t *mask;
  const int64_t *cu;
  const float *s0, *z0;
  const float *g, *gs, *gz;
  float *dq, *dk, *dv, *ds0, *dz0;
  int64_t S, B, Tq, Tk, H, D, V, F;
  linnet_strides q_strides, k_strides, v_strides, o_strides, g_strides;
  int64_t kind, causal, normalize, threads, wide;
  double scale, eps, c0, c1, c2;
};

#define COPY(type, name) a.name = (decltype(a.name))c->name;

Attention attention(const linnet_forward_call *c) {
  Attention a = {};
  LINNET_FIELDS_forward(COPY)
  a.o_strides = {c->Tq * c->H * c->V, c->H * c->V, c->V, 1};
  return a;
}

Attention attention(const linnet_backward_call *c) {
  Attention a = {};
  LINNET_FIELDS_backward(COPY)
  return a;
}

Attention attention(const linnet_step_call *c) {
  Attention a = {};
  LINNET_FIELDS_step(COPY)
  a.S = c->B, a.Tq = a.Tk = a.causal = 1;
  a.o_strides = {c->H * c->V, 0, c->V, 1};
  return a;
}

#undef COPY

struct Shape {
  const Attention *c;
  bool quad;
  int64_t Dp, Fp, nbD, nbF;  // widths rounded up to 16, and in blocks of 16
  int64_t P;                 // panels of all value columns
  bool stream_v, stream_d;   // outputs of width V, of width D: past the caches, see `streams`
  Quadratic m;
};

INLINE int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

Shape shape_of(const Attention *c) {
  Shape s = {};
  s.c = c;
  s.quad = c->kind == QUADRATIC;
  s.Dp = round_up(c->D, 16);
  s.Fp = s.quad ? round_up(c->F, 16) : s.Dp;
  s.nbD = s.Dp / 16;
  s.nbF = s.Fp / 16;
  s.P = (c->V + 15) / 16;
  s.m = {(float)c->c0, (float)c->c1, (float)c->c2, 0, 0, 0, 0, c->D};
  s.m.w0 = (float)sqrt(c->c0);
  s.m.w1 = (float)sqrt(c->c1);
  s.m.w_diag = (float)sqrt(c->c2);
  s.m.w_off = (float)sqrt(2.0 * c->c2);
  return s;
}

constexpr int64_t PAD = 48;  // floats between parts: arrays a multiple of 4 KiB apart share cache sets

// Scratch of one thread, one allocation. `states` states (S, z) come last, then their errors if `exact`.
struct Scratch {
  float *qn, *kn, *qT, *kT, *fq, *fk, *vp, *vT, *gn, *gT, *d, *dx, *zeros, *sums, *A, *W, *raw, *valid, *ones, *inv, *h,
      *S, *z, *E, *e;
  void *memory;
  Ahead ahead;

  bool make(const Shape &s, int64_t panels, int64_t states, bool exact) {
    const int64_t nD = 16 * s.Dp, nF = 16 * s.Fp, nV = 256 * panels, nS = 16 * panels * s.Fp;
    const int64_t f = s.quad ? nF : 0;
    const int64_t total = 5 * nD + 2 * f + nF + 4 * nV + 2 * s.Fp + 3 * 256 + 4 * 16 + 21 * PAD +
                          states * (exact ? 2 : 1) * (nS + s.Fp) + 16;
    memory = aligned_alloc(64, round_up(total * sizeof(float), 64));
    if (!memory) return false;
    float *p = (float *)memory;
    float **const parts[] = {&qn, &kn,    &qT,   &kT, &dx, &fq,  &fk,    &d,    &vp,  &vT, &gn,
                             &gT, &zeros, &sums, &A,  &W,  &raw, &valid, &ones, &inv, &h};
    const int64_t sizes[] = {nD, nD, nD, nD, nD, f, f, nF, nV, nV, nV, nV, s.Fp, s.Fp, 256, 256, 256, 16, 16, 16, 16};
    for (int i = 0; i < 21; ++i) {
      *parts[i] = p;
      p += sizes[i] + PAD;
    }
    memset(fq, 0, f * sizeof(float));  // rows F..Fp stay zero
    memset(fk, 0, f * sizeof(float));
    memset(zeros, 0, s.Fp * sizeof(float));
    for (int i = 0; i < 16; ++i) ones[i] = 1.0f;
    S = p;
    z = S + states * nS;
    E = exact ? z + states * s.Fp : nullptr;
    e = exact ? E + states * nS : nullptr;
    return true;
  }
};

// The state of one stream inside a task: S in panels [P][Fp][16], z [Fp]. On long sequences E and e sum up their
// rounding errors and return them every FOLD tokens: otherwise the error grows like the root of the length.
struct Stream {
  float *S, *z, *E, *e;  // E, e: null on short sequences
  int64_t nS, since;     // floats of S; chunks since the last fold
  bool live;             // false: z is still zero and S has not been written; reading them can be skipped
};

constexpr int64_t FOLD = 1024, LONG = 65536;

void fold(const Shape &s, Stream &st) {
  const auto give_back = [](float *x, float *error, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float old = x[i];
      x[i] = old + error[i];
      error[i] -= x[i] - old;  // what even now does not fit
    }
  };
  give_back(st.S, st.E, st.nS);
  give_back(st.z, st.e, s.Fp);
  st.since = 0;
}

void import_state(const Shape &s, Stream &st, const float *S0, const float *z0, int64_t v0, int64_t V) {
  st.live = S0 || z0;
  if (st.live) memset(st.S, 0, st.nS * sizeof(float));
  memset(st.z, 0, s.Fp * sizeof(float));
  if (st.E) memset(st.E, 0, st.nS * sizeof(float));
  if (st.e) memset(st.e, 0, s.Fp * sizeof(float));
  for (int64_t f = 0; S0 && f < s.c->F; ++f)
    for (int64_t c = 0; c < V; c += 16)
      memcpy(st.S + (c / 16 * s.Fp + f) * 16, S0 + f * s.c->V + v0 + c, (V - c < 16 ? V - c : 16) * sizeof(float));
  if (z0) memcpy(st.z, z0, s.c->F * sizeof(float));
}

void export_state(const Shape &s, const Stream &st, float *S1, float *z1, int64_t v0, int64_t V) {
  for (int64_t f = 0; S1 && f < s.c->F; ++f)
    for (int64_t c = 0; c < V; c += 16)
      memcpy(S1 + f * s.c->V + v0 + c, st.S + (c / 16 * s.Fp + f) * 16, (V - c < 16 ? V - c : 16) * sizeof(float));
  if (z1 && v0 == 0) memcpy(z1, st.z, s.c->F * sizeof(float));
}

// Sequence number `seq`: its batch row and its tokens.
struct Span {
  int64_t b, q0, q1, k0, k1;
};

// One chunk: head h of [h0, h1), tokens [t, t + n); and its share of the next block to prefetch: [soon, soon + share).
struct Place {
  int64_t h, t, n, h0, h1, soon, share;
};

Span span_of(const Attention *c, int64_t seq) {
  if (c->cu) return {0, c->cu[seq], c->cu[seq + 1], c->cu[seq], c->cu[seq + 1]};
  return {seq, 0, c->Tq, 0, c->Tk};
}

// valid[i] = 1 where token t + i is there and (masked) real.
void fill_valid(float *valid, const Attention *c, const Span &sp, int64_t t, int64_t n, bool masked) {
  const uint8_t *mask = masked && c->mask ? c->mask + sp.b * c->Tk + t : nullptr;
  if (n == C && !mask) {
    for (int i = 0; i < NT; ++i) store(valid + i * VL, splat(1.0f));
    return;
  }
  for (int i = 0; i < C; ++i) valid[i] = i < n && (!mask || mask[i]) ? 1.0f : 0.0f;
}

struct Part {  // value columns [v0, v0 + V) in `panels` panels
  int64_t v0, V, panels;
};

// The rows of head h from token t on, in each of the tensors.
#define ROWS(name, tensor, strides)                                                                \
  INLINE Rows name(const Attention *c, const Span &sp, int64_t h, int64_t t, int64_t column = 0) { \
    const linnet_strides &at = c->strides;                                                         \
    return {c->tensor + sp.b * at.b + t * at.t + h * at.h + column, at.t};                         \
  }
ROWS(q_rows, q, q_strides)
ROWS(k_rows, k, k_strides)
ROWS(v_rows, v, v_strides)
ROWS(g_rows, g, g_strides)
ROWS(out_rows, out, o_strides)
#undef ROWS

// Plan the prefetch: all heads of the task together, so that memory is read in order.
INLINE void plan_ahead(const Shape &s, Scratch &w, const Span &sp, const Place &at, const Part &part, bool queries,
                       bool keys, bool grads) {
  const Attention *c = s.c;
  const int64_t h = at.h0, t = at.soon, more = at.h1 - at.h0 - 1;
  w.ahead.clear(at.share);
  if (at.share < 1) return;
  if (queries) w.ahead.add(q_rows(c, sp, h, t), more * c->q_strides.h + c->D);
  if (keys) w.ahead.add(k_rows(c, sp, h, t), more * c->k_strides.h + c->D);
  if (keys) w.ahead.add(v_rows(c, sp, h, t, part.v0), more * c->v_strides.h + part.V);
  if (grads) w.ahead.add(g_rows(c, sp, h, t), more * c->g_strides.h + c->V);
  if (grads && c->normalize) w.ahead.add(out_rows(c, sp, h, t), more * c->o_strides.h + c->V);
  w.ahead.pace(TILES * s.nbF * part.panels * (queries + keys));
  w.ahead.start();
}

// Every state of a task starts from `S0`, `z0` of its stream, or from zero.
void start_streams(const Shape &s, Scratch &w, Stream *streams, const float *S0, const float *z0, int64_t seq,
                   int64_t h0, int64_t h1, const Part &part) {
  const Attention *c = s.c;
  for (int64_t h = h0; h < h1; ++h) {
    const int64_t at = seq * c->H + h;
    const int64_t i = h - h0, nS = part.panels * 16 * s.Fp;
    streams[i] = {w.S + i * nS, w.z + i * s.Fp, w.E ? w.E + i * nS : nullptr, w.e ? w.e + i * s.Fp : nullptr, nS, 0,
                  false};
    import_state(s, streams[i], S0 ? S0 + at * c->F * c->V : nullptr, z0 ? z0 + at * c->F : nullptr, part.v0, part.V);
  }
}

void finish_streams(const Shape &s, Stream *streams, float *S1, float *z1, int64_t seq, int64_t h0, int64_t h1,
                    const Part &part) {
  const Attention *c = s.c;
  for (int64_t h = h0; h < h1; ++h) {
    const int64_t at = seq * c->H + h;
    Stream &st = streams[h - h0];
    if (st.live && st.E) fold(s, st);
    if (!st.live && S1) memset(st.S, 0, st.nS * sizeof(float));
    export_state(s, st, S1 ? S1 + at * c->F * c->V : nullptr, z1 ? z1 + at * c->F : nullptr, part.v0,
                 part.V);
  }
}

constexpr int64_t BLOCK_BYTES = 100 << 10, MAX_BLOCK = 8;  // of one block; chunks

// chunk(place) over the tokens [t0, t1) of heads [h0, h1), a block of chunks per head at a time; forwards, or
// backwards. `width`: floats read per token and head. Memory is read in order, and while a block is worked on the next
// one is prefetched; the first is short because nothing prefetched it, and two of the largest fit the second-level
// cache.
template <bool BACK, class F>
INLINE void sweep(int64_t t0, int64_t t1, int64_t h0, int64_t h1, int64_t width, F chunk) {
  const int64_t chunks = (t1 - t0 + C - 1) / C, heads = h1 - h0, fit = BLOCK_BYTES / (4 * width * heads * C);
  const int64_t most = fit < 1 ? 1 : fit > MAX_BLOCK ? MAX_BLOCK : fit;
  int64_t size = 1, next_size = 1;
  for (int64_t done = 0; done < chunks; done += size, size = next_size) {
    next_size = 2 * size < most ? 2 * size : most;
    next_size = next_size < chunks - done - size ? next_size : chunks - done - size;
    const int64_t first = BACK ? chunks - done - size : done, next = BACK ? first - next_size : first + size;
    const int64_t each = (next_size * C + heads * size - 1) / (heads * size);  // tokens to bring near per chunk
    const int64_t next_end = t0 + (next + next_size) * C < t1 ? t0 + (next + next_size) * C : t1;
    int64_t soon = t0 + next * C;
    for (int64_t h = h0; h < h1; ++h)
      for (int64_t j = 0; j < size; ++j, soon += each) {
        const int64_t t = t0 + (first + (BACK ? size - 1 - j : j)) * C, left = next_end - soon;
        chunk(Place{h, t, t1 - t < C ? t1 - t : C, h0, h1, soon, left < each ? left : each});
      }
  }
}

}  // namespace
