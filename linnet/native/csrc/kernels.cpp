// Linear attention on one instruction set: forward, backward and the one-token step. Compiled once per set (LINNET_ISA).
//
//   o_t = factor_t ( sum_{j<=t} kappa(q_t, k_j) v_j + phi(q_t) S ),  S += phi(k)^T v,  z += sum phi(k),  16 tokens at a time
//
// kappa inside a chunk is phi(q).phi(k), or c0 + c1 s + c2 s^2 of s = q.k for quadratic kernels, whose features serve the
// state alone. The backward needs q, k, v, out and inv only: one sweep to the right with S gives dq, one to the left with
// R = sum phi(q)^T g gives dk and dv. Tasks are (sequence, heads, value columns): each sums in an order of its own that
// does not depend on the number of threads, so neither does the result.
#include "linnet.h"
#include "stage.h"

#include <math.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

struct Shape {
  const linnet_call *c;
  bool quad;
  int64_t Dp, Fp, nbD, nbF;  // widths rounded up to 16, and in blocks of 16
  int64_t P;                 // panels of all value columns
  bool stream_v, stream_d;   // outputs of width V, of width D: past the caches, see `streams`
  Quadratic m;
};

INLINE int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

Shape shape_of(const linnet_call *c) {
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

// Scratch of one thread, one allocation. `states` states (S, z) come last, then their errors if `exact`.
constexpr int64_t PAD = 48;  // floats between parts: arrays a multiple of 4 KiB apart get in the way of each other's stores

struct Scratch {
  float *qn, *kn, *qT, *kT, *fq, *fk, *vp, *vT, *gn, *gT, *d, *dx, *zeros, *sums, *A, *W, *raw, *valid, *ones, *inv, *h, *S, *z, *E, *e;
  void *memory;
  Ahead ahead;

  bool make(const Shape &s, int64_t panels, int64_t states, bool exact) {
    const int64_t nD = 16 * s.Dp, nF = 16 * s.Fp, nV = 256 * panels, nS = 16 * panels * s.Fp;
    const int64_t f = s.quad ? nF : 0;
    const int64_t total = 5 * nD + 2 * f + nF + 4 * nV + 2 * s.Fp + 3 * 256 + 4 * 16 + 21 * PAD + states * (exact ? 2 : 1) * (nS + s.Fp) + 16;
    memory = aligned_alloc(64, round_up(total * sizeof(float), 64));
    if (!memory) return false;
    float *p = (float *)memory;
    float **const parts[] = {&qn, &kn, &qT, &kT, &dx, &fq, &fk, &d, &vp, &vT, &gn, &gT, &zeros, &sums, &A, &W, &raw, &valid, &ones, &inv, &h};
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

// The state of one stream inside a task: S in panels [P][Fp][16], z [Fp]. On long sequences E and e gather what rounding
// took from them, and give it back every FOLD tokens: without, the error grows like the root of the length.
struct Stream {
  float *S, *z, *E, *e;  // E, e: null on short sequences
  int64_t nS, since;     // floats of S; chunks since the last fold
  bool live;             // false: S and z are still zero, reading them can be skipped
};

constexpr int64_t FOLD = 1024, LONG = 16384;

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

void import_state(const Shape &s, Stream &st, const float *S0, const float *z0, int64_t v0, int64_t V, int64_t panels) {
  memset(st.S, 0, panels * s.Fp * 16 * sizeof(float));
  memset(st.z, 0, s.Fp * sizeof(float));
  if (st.E) memset(st.E, 0, st.nS * sizeof(float));
  if (st.e) memset(st.e, 0, s.Fp * sizeof(float));
  st.live = S0 || z0;
  if (S0)
    for (int64_t f = 0; f < s.c->F; ++f)
      for (int64_t c = 0; c < V; ++c) st.S[(c / 16 * s.Fp + f) * 16 + c % 16] = S0[f * s.c->V + v0 + c];
  if (z0) memcpy(st.z, z0, s.c->F * sizeof(float));
}

void export_state(const Shape &s, const Stream &st, float *S1, float *z1, int64_t v0, int64_t V) {
  if (S1)
    for (int64_t f = 0; f < s.c->F; ++f)
      for (int64_t c = 0; c < V; ++c) S1[f * s.c->V + v0 + c] = st.S[(c / 16 * s.Fp + f) * 16 + c % 16];
  if (z1 && v0 == 0) memcpy(z1, st.z, s.c->F * sizeof(float));
}

// Sequence number `seq`: its batch row and its tokens.
struct Span {
  int64_t b, q0, q1, k0, k1;
};

// One chunk: head h of [h0, h1), tokens [t, t + n); and its share of the next block to bring near: tokens [soon, soon + share).
struct Place {
  int64_t h, t, n, h0, h1, soon, share;
};

Span span_of(const linnet_call *c, int64_t seq) {
  if (c->cu) return {0, c->cu[seq], c->cu[seq + 1], c->cu[seq], c->cu[seq + 1]};
  return {seq, 0, c->Tq, 0, c->Tk};
}

void fill_valid(float *valid, const uint8_t *mask, int64_t n) {
  for (int i = 0; i < C; ++i) valid[i] = i < n && (!mask || mask[i]) ? 1.0f : 0.0f;
}

// ---- pieces of a chunk ------------------------------------------------------------------------------------------

enum Side { KEY_BEFORE_QUERY, QUERY_AFTER_KEY };  // rows are queries, columns keys; or the other way round

// Keeps the causal half of 16 x 16 scores. apply(x, row, column group) may change them first.
template <int SIDE, class F>
INLINE void causal_scores(float *A, F apply) {
  vi lane;
  for (int n = 0; n < VL; ++n) lane[n] = n;
  for (int i = 0; i < C; ++i)
    for (int n = 0; n < NT; ++n) {
      const vi keep = SIDE == KEY_BEFORE_QUERY ? lane + n * VL <= i : lane + n * VL >= i;
      float *p = A + i * C + n * VL;
      store(p, (vf)((vi)apply(load(p), i, n * VL) & keep));
    }
}

// den[i] = sum_j A[i][j] + phi(q_i) . z  ->  factor[i] = scale / (scale den + eps), or scale; 0 for tokens that are not there
NOINLINE void factors(const Shape &s, const Scratch &w, const float *A, const Stream &st, float *factor) {
  const float scale = (float)s.c->scale, eps = (float)s.c->eps;
  vf den[NT] = {};
  if (s.c->normalize) {
    float rows[256], columns[256];
    for (int i = 0; i < C; ++i)
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        vf x = A ? load(A + i * C + n * VL) : (vf){};
        if (!s.quad && st.live)
          for (int64_t b = 0; b < s.nbD; ++b) x += load(w.qn + b * 256 + i * 16 + n * VL) * load(st.z + b * 16 + n * VL);
        store(rows + i * C + n * VL, x);
      }
    transpose16(columns, rows, 16);
    for (int l = 0; l < C; ++l)
      UNROLL(4) for (int n = 0; n < NT; ++n) den[n] += load(columns + l * C + n * VL);
    if (s.quad && st.live)
      for (int64_t f = 0; f < s.c->F; ++f)
        UNROLL(4) for (int n = 0; n < NT; ++n) den[n] += st.z[f] * load(w.fq + f * C + n * VL);
  }
  for (int n = 0; n < NT; ++n) {
    vf x = s.c->normalize ? scale / (den[n] * scale + eps) : splat(scale);
    vf valid = load(w.valid + n * VL);
    store(factor + n * VL, valid > 0.0f ? x : (vf){});
  }
}

INLINE void load_q(const Shape &s, Scratch &w, Rows q, bool transposed) {
  load_natural_by_kind[s.c->kind](w.qn, q, s.c->D, w.valid);
  if (transposed || s.quad) transpose(w.qT, w.qn, s.nbD);
  if (s.quad) build_features(w.fq, s.m, w.qT, w.valid);
}

INLINE void load_k(const Shape &s, Scratch &w, Rows k, bool transposed) {
  load_natural_by_kind[s.c->kind](w.kn, k, s.c->D, w.valid);
  if (transposed || s.quad) transpose(w.kT, w.kn, s.nbD);
  if (s.quad) build_features(w.fk, s.m, w.kT, w.valid);
}

// S += phi(x)^T w over 16 tokens: the 16 features of block blk, panel p.
INLINE void add_block(const Shape &s, Scratch &ws, const Stream &st, const float *natural, const float *features, const float *w,
                      int64_t blk, int64_t p) {
  const int64_t at = (p * s.Fp + blk * 16) * 16;
  float *S = st.S + at, *E = st.E ? st.E + at : nullptr;
  if (s.quad)
    update<16, 1>(S, E, features + blk * 256, w + p * 256, ws.ahead);
  else
    update<1, 16>(S, E, natural + blk * 256, w + p * 256, ws.ahead);
}

INLINE void add_outer(const Shape &s, Scratch &ws, Stream &st, const float *natural, const float *features, const float *w, int64_t panels) {
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t blk = 0; blk < s.nbF; ++blk) add_block(s, ws, st, natural, features, w, blk, p);
  st.live = true;
}

// z += sum_t weight_t phi(x_t)
INLINE void add_sums(const Shape &s, Scratch &w, Stream &st, const float *natural, const float *weight, bool weighted) {
  if (s.quad) {
    const float *x = natural;
    if (weighted) {
      for (int64_t b = 0; b < s.nbD; ++b)
        for (int i = 0; i < C; ++i)
          for (int n = 0; n < NT; ++n) store(w.dx + b * 256 + i * 16 + n * VL, load(natural + b * 256 + i * 16 + n * VL) * weight[i]);
      x = w.dx;
    }
    memset(w.sums, 0, s.Fp * sizeof(float));
    add_feature_sums(w.sums, s.m, natural, x, weight);
  } else {
    for (int64_t b = 0; b < s.nbD; ++b)
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        vf total = {};
        UNROLL(16) for (int i = 0; i < C; ++i) {
          const vf x = load(natural + b * 256 + i * 16 + n * VL);
          total += weighted ? x * weight[i] : x;
        }
        store(w.sums + b * 16 + n * VL, total);
      }
  }
  for (int64_t f = 0; f < s.Fp; f += VL) add_to(st.z + f, st.e ? st.e + f : nullptr, load(w.sums + f));
  if (st.e && ++st.since == FOLD / C) fold(s, st);
}

// ---- forward ----------------------------------------------------------------------------------------------------

struct Part {  // value columns [v0, v0 + V) in `panels` panels
  int64_t v0, V, panels;
};

INLINE Rows rows_at(const float *p, int64_t offset, int64_t stride) { return {p + offset, stride}; }

// Plans the prefetch: all heads of the task side by side, so that memory is read in order. 
INLINE void plan_ahead(const Shape &s, Scratch &w, const Span &sp, const Place &at, const Part &part, bool queries, bool keys,
                       bool grads) {
  const linnet_call *c = s.c;
  const int64_t h = at.h0, t = at.soon, more = at.h1 - at.h0 - 1;
  w.ahead = Ahead();
  w.ahead.tokens = at.share;
  if (at.share < 1) return;
  if (queries) w.ahead.add(c->q + sp.b * c->q_b + t * c->q_t + h * c->q_h, c->q_t, more * c->q_h + c->D);
  if (keys) w.ahead.add(c->k + sp.b * c->k_b + t * c->k_t + h * c->k_h, c->k_t, more * c->k_h + c->D);
  if (keys) w.ahead.add(c->v + sp.b * c->v_b + t * c->v_t + h * c->v_h + part.v0, c->v_t, more * c->v_h + part.V);
  if (grads) w.ahead.add(c->g + sp.b * c->g_b + t * c->g_t + h * c->g_h, c->g_t, more * c->g_h + c->V);
  if (grads && c->normalize) w.ahead.add(c->out + sp.b * c->o_b + t * c->o_t + h * c->o_h, c->o_t, more * c->o_h + c->V);
  w.ahead.start();
}

void accumulate_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, part, false, true, false);
  fill_valid(w.valid, c->mask ? c->mask + sp.b * c->mask_b + t : nullptr, n);
  load_k(s, w, rows_at(c->k, sp.b * c->k_b + t * c->k_t + h * c->k_h, c->k_t), false);
  load_natural<IDENTITY>(w.vp, rows_at(c->v, sp.b * c->v_b + t * c->v_t + h * c->v_h + part.v0, c->v_t), part.V, w.valid);
  add_outer(s, w, st, w.kn, w.fk, w.vp, part.panels);
  add_sums(s, w, st, w.kn, w.valid, false);
}

// Panel by panel: the outputs, then (keep) the update with the same tokens' keys while the panel is in the first-level cache.
void write_output(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part, int causal, bool keep) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  factors(s, w, causal ? w.A : nullptr, st, w.inv);
  if (c->inv && part.v0 == 0)
    for (int i = 0; i < n; ++i) c->inv[(sp.b * c->Tq + t + i) * c->H + h] = w.inv[i];
  float *out = c->out + sp.b * c->o_b + t * c->o_t + h * c->o_h + part.v0;
  for (int64_t p = 0; p < part.panels; ++p) {
    const int64_t width = part.V - p * 16;
    const RowsOut o = {out + p * 16, c->o_t, n, width < 16 ? width : 16, s.stream_v};
    const float *S = st.S + p * s.Fp * 16;
    if (s.quad)
      read<1, 16>(o, causal, w.A, w.vp + p * 256, w.fq, S, st.live ? s.nbF : 0, w.inv, w.ahead);
    else
      read<16, 1>(o, causal, w.A, w.vp + p * 256, w.qn, S, st.live ? s.nbD : 0, w.inv, w.ahead);
    if (keep)
      for (int64_t blk = 0; blk < s.nbF; ++blk) add_block(s, w, st, w.kn, w.fk, w.vp, blk, p);
  }
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

void causal_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, const Part &part,
                  bool keep) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, part, true, true, false);
  fill_valid(w.valid, c->mask ? c->mask + sp.b * c->mask_b + t : nullptr, n);
  load_q(s, w, rows_at(c->q, sp.b * c->q_b + t * c->q_t + h * c->q_h, c->q_t), false);
  load_k(s, w, rows_at(c->k, sp.b * c->k_b + t * c->k_t + h * c->k_h, c->k_t), true);
  load_natural<IDENTITY>(w.vp, rows_at(c->v, sp.b * c->v_b + t * c->v_t + h * c->v_h + part.v0, c->v_t), part.V, w.valid);
  scores<16, 1>(w.A, w.qn, w.kT, s.nbD);
  if (s.quad)
    causal_scores<KEY_BEFORE_QUERY>(w.A, [&](vf x, int, int col) { return s.m.kernel(x) * load(w.valid + col); });
  else
    causal_scores<KEY_BEFORE_QUERY>(w.A, [](vf x, int, int) { return x; });
  write_output(s, w, st, sp, at, part, 1, keep);
}

// Every state of a task starts from `S0`, `z0` of its stream, or from zero.
void start_streams(const Shape &s, Scratch &w, Stream *streams, const float *S0, const float *z0, int64_t seq, int64_t h0, int64_t h1,
                   const Part &part) {
  const linnet_call *c = s.c;
  for (int64_t h = h0; h < h1; ++h) {
    const int64_t at = seq * c->H + h;
    const int64_t i = h - h0, nS = part.panels * 16 * s.Fp;
    streams[i] = {w.S + i * nS, w.z + i * s.Fp, w.E ? w.E + i * nS : nullptr, w.e ? w.e + i * s.Fp : nullptr, nS, 0, false};
    import_state(s, streams[i], S0 ? S0 + at * c->F * c->V : nullptr, z0 ? z0 + at * c->F : nullptr, part.v0, part.V, part.panels);
  }
}

void finish_streams(const Shape &s, Stream *streams, float *S1, float *z1, int64_t seq, int64_t h0, int64_t h1, const Part &part) {
  const linnet_call *c = s.c;
  for (int64_t h = h0; h < h1; ++h) {
    const int64_t at = seq * c->H + h;
    if (streams[h - h0].E) fold(s, streams[h - h0]);
    export_state(s, streams[h - h0], S1 ? S1 + at * c->F * c->V : nullptr, z1 ? z1 + at * c->F : nullptr, part.v0, part.V);
  }
}

constexpr int64_t BLOCK_BYTES = 400 << 10, MAX_BLOCK = 128;

// chunk(place) over the tokens [t0, t1) of heads [h0, h1), a block of tokens per head at a time; forwards, or backwards.
// `width`: floats read per token and head. Memory is read in order, and two blocks of it fit the second-level cache.
template <bool BACK, class F>
INLINE void sweep(int64_t t0, int64_t t1, int64_t h0, int64_t h1, int64_t width, F chunk) {
  int64_t block = BLOCK_BYTES / (4 * width * (h1 - h0)) / C * C;
  block = block < C ? C : block > MAX_BLOCK ? MAX_BLOCK : block;
  const int64_t blocks = (t1 - t0 + block - 1) / block;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = t0 + (BACK ? blocks - 1 - i : i) * block, end = begin + block < t1 ? begin + block : t1;
    const int64_t next = BACK ? begin - block : begin + block, next_end = next + block < t1 ? next + block : t1;
    const int64_t chunks = (end - begin + C - 1) / C, each = (block + (h1 - h0) * chunks - 1) / ((h1 - h0) * chunks);
    int64_t soon = next;
    for (int64_t h = h0; h < h1; ++h)
      for (int64_t j = 0; j < chunks; ++j, soon += each) {
        const int64_t t = begin + (BACK ? chunks - 1 - j : j) * C;
        const int64_t left = next < t0 ? 0 : next_end - soon;
        chunk(Place{h, t, end - t < C ? end - t : C, h0, h1, soon, left < each ? left : each});
      }
  }
}

void forward_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1, const Part &part) {
  const linnet_call *c = s.c;
  const Span sp = span_of(c, seq);
  start_streams(s, w, streams, c->s0, c->z0, seq, h0, h1, part);
  if (c->causal) {
    sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + part.V, [&](const Place &at) {
      causal_chunk(s, w, streams[at.h - h0], sp, at, part, c->s_out || at.t + C < sp.q1);
    });
  } else {
    sweep<false>(sp.k0, sp.k1, h0, h1, c->D + c->V, [&](const Place &at) { accumulate_chunk(s, w, streams[at.h - h0], sp, at, part); });
    sweep<false>(sp.q0, sp.q1, h0, h1, c->D, [&](const Place &at) {
      fill_valid(w.valid, nullptr, at.n);
      load_q(s, w, rows_at(c->q, sp.b * c->q_b + at.t * c->q_t + at.h * c->q_h, c->q_t), false);
      write_output(s, w, streams[at.h - h0], sp, at, part, 0, false);
    });
  }
  finish_streams(s, streams, c->s_out, c->z_out, seq, h0, h1, part);
  if (s.stream_v) stream_fence();
}

// ---- backward ---------------------------------------------------------------------------------------------------

// Output gradients of 16 queries into gn and h; rows that are not there get 0.
INLINE void load_g(const Shape &s, Scratch &w, const Span &sp, const Place &at) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  for (int i = 0; i < C; ++i) w.inv[i] = i < n ? c->inv[(sp.b * c->Tq + t + i) * c->H + h] : 0.0f;
  load_output_grad(w.gn, w.h, rows_at(c->g, sp.b * c->g_b + t * c->g_t + h * c->g_h, c->g_t),
                   rows_at(c->out, sp.b * c->o_b + t * c->o_t + h * c->o_h, c->o_t), w.inv, c->V, c->normalize);
}

// Quadratic kernels: dx [D][16] = sum_j x_j W[j][:] with x [D][16] the other side's tokens (null: none).
INLINE void inner_grads(const Shape &s, Scratch &w, const float *xT) {
  for (int64_t blk = 0; blk < s.nbD; ++blk)
    grads(w.dx + blk * 256, w.zeros, 0, 0, w.zeros, w.zeros, w.ones, xT ? xT + blk * 256 : nullptr, w.W, w.ahead);
}

// dq of 16 tokens, from the state before them and (causal) from their own keys.
void dq_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, bool keep) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, true, c->causal, true);
  const uint8_t *mask = c->causal && c->mask ? c->mask + sp.b * c->mask_b + t : nullptr;
  fill_valid(w.valid, mask, n);
  load_g(s, w, sp, at);
  transpose(w.gT, w.gn, s.P);
  load_natural_by_kind[c->kind](w.qn, rows_at(c->q, sp.b * c->q_b + t * c->q_t + h * c->q_h, c->q_t), c->D, w.valid);
  if (s.quad) transpose(w.qT, w.qn, s.nbD);
  if (c->causal) {
    load_k(s, w, rows_at(c->k, sp.b * c->k_b + t * c->k_t + h * c->k_h, c->k_t), true);
    load_natural<IDENTITY>(w.vp, rows_at(c->v, sp.b * c->v_b + t * c->v_t + h * c->v_h, c->v_t), c->V, w.valid);
    scores<16, 1>(w.W, w.vp, w.gT, s.P);  // rows keys, columns queries
    if (s.quad) {
      scores<16, 1>(w.raw, w.kn, w.qT, s.nbD);
      causal_scores<QUERY_AFTER_KEY>(w.W, [&](vf x, int i, int col) { return (x + load(w.h + col)) * s.m.slope(load(w.raw + i * C + col)); });
    } else {
      causal_scores<QUERY_AFTER_KEY>(w.W, [&](vf x, int, int col) { return x + load(w.h + col); });
    }
  }
  const int64_t panels = st.live ? s.P : 0, step = s.Fp * 16;
  const float *kT = c->causal ? w.kT : nullptr, *result = w.d;
  for (int64_t blk = 0; blk < s.nbF; ++blk) {
    const int64_t f = blk * 16;
    grads(w.d + f * C, st.S + f * 16, step, panels, w.gT, st.z + f, w.h, s.quad || !kT ? nullptr : kT + f * C, w.W, w.ahead);
    if (keep)
      for (int64_t p = 0; p < s.P; ++p) add_block(s, w, st, w.kn, w.fk, w.vp, blk, p);
  }
  if (s.quad) {
    inner_grads(s, w, kT);
    features_vjp(w.dx, s.m, w.qT, w.d);
    result = w.dx;
  }
  store_grad_by_kind[c->kind](c->dq + ((sp.b * c->Tq + t) * c->H + h) * c->D, c->H * c->D, n, c->D, result, w.qn, w.valid, s.stream_d);
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.kn, w.valid, false);
}

void dq_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1) {
  const linnet_call *c = s.c;
  const Span sp = span_of(c, seq);
  const Part all = {0, c->V, s.P};
  start_streams(s, w, streams, c->s0, c->z0, seq, h0, h1, all);
  if (!c->causal)
    sweep<false>(sp.k0, sp.k1, h0, h1, c->D + c->V, [&](const Place &at) { accumulate_chunk(s, w, streams[at.h - h0], sp, at, all); });
  sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) { dq_chunk(s, w, streams[at.h - h0], sp, at, c->causal && at.t + C < sp.q1); });
  if (s.stream_d) stream_fence();
}

// dk and dv of 16 tokens, from R after them and (causal) from their own queries.
void dkv_chunk(const Shape &s, Scratch &w, Stream &st, const Span &sp, const Place &at, bool keep) {
  const linnet_call *c = s.c;
  const int64_t h = at.h, t = at.t, n = at.n;
  plan_ahead(s, w, sp, at, {0, c->V, s.P}, c->causal, true, c->causal);
  fill_valid(w.valid, c->mask ? c->mask + sp.b * c->mask_b + t : nullptr, n);
  load_k(s, w, rows_at(c->k, sp.b * c->k_b + t * c->k_t + h * c->k_h, c->k_t), false);
  load_natural<IDENTITY>(w.vp, rows_at(c->v, sp.b * c->v_b + t * c->v_t + h * c->v_h, c->v_t), c->V, w.valid);
  transpose(w.vT, w.vp, s.P);
  if (c->causal) {
    load_q(s, w, rows_at(c->q, sp.b * c->q_b + t * c->q_t + h * c->q_h, c->q_t), true);
    load_g(s, w, sp, at);
    scores<16, 1>(w.A, w.kn, w.qT, s.nbD);    // rows keys, columns queries
    scores<16, 1>(w.W, w.gn, w.vT, s.P);  // rows queries, columns keys
    if (s.quad) {
      transpose16(w.raw, w.A, C);
      causal_scores<KEY_BEFORE_QUERY>(w.W, [&](vf x, int i, int col) { return (x + w.h[i]) * s.m.slope(load(w.raw + i * C + col)); });
      causal_scores<QUERY_AFTER_KEY>(w.A, [&](vf x, int i, int) { return s.m.kernel(x) * w.valid[i]; });
    } else {
      causal_scores<KEY_BEFORE_QUERY>(w.W, [&](vf x, int i, int) { return x + w.h[i]; });
      causal_scores<QUERY_AFTER_KEY>(w.A, [](vf x, int, int) { return x; });
    }
  }
  float *dv = c->dv + ((sp.b * c->Tk + t) * c->H + h) * c->V;
  const int side = c->causal ? -1 : 0;
  for (int64_t p = 0; p < s.P; ++p) {
    const int64_t width = c->V - p * 16;
    const RowsOut o = {dv + p * 16, c->H * c->V, n, width < 16 ? width : 16, s.stream_v};
    const float *R = st.S + p * s.Fp * 16;
    if (s.quad)
      read<1, 16>(o, side, w.A, w.gn + p * 256, w.fk, R, st.live ? s.nbF : 0, nullptr, w.ahead);
    else
      read<16, 1>(o, side, w.A, w.gn + p * 256, w.kn, R, st.live ? s.nbD : 0, nullptr, w.ahead);
  }
  const int64_t panels = st.live ? s.P : 0, step = s.Fp * 16;
  const float *qT = c->causal ? w.qT : nullptr, *result = w.d;
  for (int64_t blk = 0; blk < s.nbF; ++blk) {
    const int64_t f = blk * 16;
    grads(w.d + f * C, st.S + f * 16, step, panels, w.vT, st.z + f, w.ones, s.quad || !qT ? nullptr : qT + f * C, w.W, w.ahead);
    if (keep)
      for (int64_t p = 0; p < s.P; ++p) add_block(s, w, st, w.qn, w.fq, w.gn, blk, p);
  }
  if (s.quad) {
    inner_grads(s, w, qT);
    features_vjp(w.dx, s.m, w.kT, w.d);
    result = w.dx;
  }
  store_grad_by_kind[c->kind](c->dk + ((sp.b * c->Tk + t) * c->H + h) * c->D, c->H * c->D, n, c->D, result, w.kn, w.valid, s.stream_d);
  if (!keep) return;
  st.live = true;
  add_sums(s, w, st, w.qn, w.h, true);
}

void dkv_task(const Shape &s, Scratch &w, Stream *streams, int64_t seq, int64_t h0, int64_t h1) {
  const linnet_call *c = s.c;
  const Span sp = span_of(c, seq);
  const Part all = {0, c->V, s.P};
  start_streams(s, w, streams, c->gs, c->gz, seq, h0, h1, all);
  if (!c->causal)
    sweep<false>(sp.q0, sp.q1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) {
      fill_valid(w.valid, nullptr, at.n);
      load_q(s, w, rows_at(c->q, sp.b * c->q_b + at.t * c->q_t + at.h * c->q_h, c->q_t), false);
      load_g(s, w, sp, at);
      add_outer(s, w, streams[at.h - h0], w.qn, w.fq, w.gn, s.P);  // R += phi(q)^T gn,  r += sum h phi(q)
      add_sums(s, w, streams[at.h - h0], w.qn, w.h, true);
    });
  sweep<true>(sp.k0, sp.k1, h0, h1, 2 * c->D + 3 * c->V, [&](const Place &at) {
    dkv_chunk(s, w, streams[at.h - h0], sp, at, c->causal && (at.t > sp.k0 || c->ds0));
  });
  finish_streams(s, streams, c->ds0, c->dz0, seq, h0, h1, all);
  if (s.stream_v || s.stream_d) stream_fence();
}

// ---- one token --------------------------------------------------------------------------------------------------

NOINLINE void map_token(int64_t kind, float *dst, const float *x, int64_t D) {
  float pad[16], y[16];
  for (int64_t d = 0; d < D; d += 16) {
    copy_tail(pad, x + d, D - d);
    for (int n = 0; n < NT; ++n) {
      const vf v = load(pad + n * VL);
      store(y + n * VL, kind == ELU ? phi<ELU>(v) : kind == RELU ? phi<RELU>(v) : kind == RELU2 ? phi<RELU2>(v) : kind == EXP ? phi<EXP>(v) : v);
    }
    memcpy(dst + d, y, (D - d < 16 ? D - d : 16) * sizeof(float));
  }
}

void token_features(const Shape &s, float *f, const float *x) {
  if (!s.quad) return map_token(s.c->kind, f, x, s.c->D);
  const Quadratic &m = s.m;
  if (m.c0 > 0.0f) *f++ = m.w0;
  if (m.c1 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) *f++ = x[i] * m.w1;
  if (m.c2 > 0.0f)
    for (int64_t i = 0; i < m.D; ++i) {
      *f++ = x[i] * x[i] * m.w_diag;
      const float xi = x[i] * m.w_off;
      for (int64_t j = i + 1; j < m.D; ++j) *f++ = xi * x[j];
    }
}

// z1 = z0 + phi(k); returns scale / (scale phi(q).z1 + eps), or scale. T: float, or double for streams without end.
template <class T>
float step_sums(const linnet_call *c, const float *fq, const float *fk, const T *z0, T *z1) {
  T den = 0;
  for (int64_t f = 0; f < c->F; ++f) {
    z1[f] = (z0 ? z0[f] : (T)0) + (T)fk[f];
    den += (T)fq[f] * z1[f];
  }
  return (float)(c->normalize ? c->scale / ((double)den * c->scale + c->eps) : c->scale);
}

// s1 = s0 + phi(k) v^T, out = factor phi(q) s1 for the columns [m, m + N): the state is read once and written once.
template <class T, int N>
INLINE void step_columns(const linnet_call *c, const float *fq, const float *fk, const float *v, const T *s0, T *s1, float *out, int64_t m,
                         float factor) {
  T acc[N] = {};
  for (int64_t f = 0; f < c->F; ++f) {
    const int64_t i = f * c->V + m;
    UNROLL(32) for (int n = 0; n < N; ++n) {
      const T x = (T)fk[f] * (T)v[m + n] + (s0 ? s0[i + n] : (T)0);
      s1[i + n] = x;
      acc[n] += (T)fq[f] * x;
    }
  }
  for (int n = 0; n < N; ++n) out[m + n] = (float)acc[n] * factor;
}

template <class T>
void step_one(const Shape &s, float *fq, float *fk, int64_t b, int64_t h) {
  const linnet_call *c = s.c;
  const int64_t at = b * c->H + h, F = c->F, V = c->V;
  const T *s0 = c->s0 ? (const T *)c->s0 + at * F * V : nullptr, *z0 = c->z0 ? (const T *)c->z0 + at * F : nullptr;
  T *s1 = (T *)c->s_out + at * F * V, *z1 = (T *)c->z_out + at * F;
  const float *v = c->v + b * c->v_b + h * c->v_h;
  float *out = c->out + b * c->o_b + h * c->o_h;
  token_features(s, fq, c->q + b * c->q_b + h * c->q_h);
  token_features(s, fk, c->k + b * c->k_b + h * c->k_h);
  const float factor = step_sums<T>(c, fq, fk, z0, z1);
  constexpr int N = 2 * VL;
  int64_t m = 0;
  for (; m + N <= V; m += N) step_columns<T, N>(c, fq, fk, v, s0, s1, out, m, factor);
  for (; m < V; ++m) step_columns<T, 1>(c, fq, fk, v, s0, s1, out, m, factor);
}

// ---- tasks over threads -----------------------------------------------------------------------------------------

int threads_for(const linnet_call *c, int64_t tasks, double flops) {
#ifdef _OPENMP
  if (flops < 2e6 || c->threads < 2 || omp_in_parallel()) return 1;  // below this, waking threads costs more than it saves
  return (int)(tasks < c->threads ? tasks : c->threads);
#else
  (void)c, (void)tasks, (void)flops;
  return 1;
#endif
}

constexpr int64_t MAX_GROUP = 8;

// Products of features and values over all tokens: the unit of work.
double work(const Shape &s) {
  const linnet_call *c = s.c;
  return (double)(c->Tq > c->Tk ? c->Tq : c->Tk) * c->B * c->H * s.Fp * c->V;
}

// True when an output is better written past the caches: whole lines, and more of them than the caches hold. Ordinary
// stores to memory that is not cached wait for it, and every store of the state waits behind them.
constexpr int64_t STREAM_BYTES = 1 << 20;

bool streams(const float *p, int64_t count) { return (uintptr_t)p % 64 == 0 && count * 4 > STREAM_BYTES; }

// Several heads of a sequence share a task and so read memory in order, as long as every thread still has its tasks.
int64_t heads_per_task(const linnet_call *c) {
  int64_t group = 1;
  if (c->q_h > c->q_t || c->k_h > c->k_t || c->v_h > c->v_t) return group;  // heads lie apart: each reads in order by itself
  while (group < MAX_GROUP && group * 2 <= c->H && c->S * c->H >= group * 2 * c->threads) group *= 2;
  return group;
}

// Long sequences, and streams handed on from call to call, which may be any length by now.
bool gather_errors(const linnet_call *c) { return c->Tk > LONG || c->Tq > LONG || c->s0; }

int forward(const linnet_call *c) {
  Shape s = shape_of(c);
  s.stream_v = c->V % 16 == 0 && streams(c->out, c->B * c->Tq * c->H * c->V);
  int64_t parts = 1;  // fewer streams than threads: split the value columns too
  if (c->S * c->H > 0 && c->S * c->H < c->threads) parts = (c->threads + c->S * c->H - 1) / (c->S * c->H);
  if (parts > s.P) parts = s.P;
  const int64_t group = heads_per_task(c), groups = (c->H + group - 1) / group, tasks = c->S * groups * parts;
  const int threads = threads_for(c, tasks, 4.0 * work(s));
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch w;
    Stream st[MAX_GROUP];
    const bool ok = w.make(s, (s.P + parts - 1) / parts, group, gather_errors(c));
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      if (!ok) {
        status = LINNET_NO_MEMORY;
        continue;
      }
      const int64_t part = task % parts, seq = task / parts / groups, h0 = task / parts % groups * group;
      const int64_t each = (s.P + parts - 1) / parts, p0 = part * each;
      if (p0 >= s.P) continue;
      const int64_t panels = s.P - p0 < each ? s.P - p0 : each;
      const int64_t left = c->V - p0 * 16;
      forward_task(s, w, st, seq, h0, h0 + group < c->H ? h0 + group : c->H, {p0 * 16, left < panels * 16 ? left : panels * 16, panels});
    }
    if (ok) free(w.memory);
  }
  return status;
}

int backward(const linnet_call *c) {
  Shape s = shape_of(c);
  s.stream_v = c->V % 16 == 0 && streams(c->dv, c->B * c->Tk * c->H * c->V);
  s.stream_d = c->D % 16 == 0 && streams(c->dq, c->B * c->Tq * c->H * c->D) && streams(c->dk, c->B * c->Tk * c->H * c->D);
  const int64_t group = heads_per_task(c), groups = (c->H + group - 1) / group, tasks = 2 * c->S * groups;
  const int threads = threads_for(c, tasks, 10.0 * work(s));
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch w;
    Stream st[MAX_GROUP];
    const bool ok = w.make(s, s.P, group, gather_errors(c));
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      if (!ok) {
        status = LINNET_NO_MEMORY;
        continue;
      }
      const int64_t seq = task / 2 / groups, h0 = task / 2 % groups * group, h1 = h0 + group < c->H ? h0 + group : c->H;
      if (task % 2 == 0)
        dkv_task(s, w, st, seq, h0, h1);  // the longer one first
      else
        dq_task(s, w, st, seq, h0, h1);
    }
    if (ok) free(w.memory);
  }
  return status;
}

int step(const linnet_call *c) {
  const Shape s = shape_of(c);
  const int64_t tasks = c->S * c->H;
  const int threads = threads_for(c, tasks, 16.0 * tasks * c->F * c->V);  // memory-bound: counted dearer than its flops
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    float *f = (float *)malloc(2 * c->F * sizeof(float) + 64);
#pragma omp for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) {
      if (f)
        (c->wide ? step_one<double> : step_one<float>)(s, f, f + c->F, task / c->H, task % c->H);
      else
        status = LINNET_NO_MEMORY;
    }
    free(f);
  }
  return status;
}

}  // namespace

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern "C" const linnet_table JOIN(linnet_table_, LINNET_ISA);
const linnet_table JOIN(linnet_table_, LINNET_ISA) = {TEXT(LINNET_ISA), forward, backward, step};
