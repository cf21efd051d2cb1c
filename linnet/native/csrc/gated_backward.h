// Backward of the gated family, segment by segment from the last: recompute the states of its chunks from the one that
// was kept, then walk back through them with R, the gradient of the state.
//
//     dw_j = sum_{t>=j} (x_t . e^{G_t - G_j} y_j) g_t + R^T (e^{G_C - G_j} y_j)      values, from the rows g that read
//     dx_t = e^G_t S g_t + ...,   dy_j = e^{G_C - G_j} R w_j + ...,   R <- e^G_C R + sum_t (x_t e^G_t) g_t^T
//
// for readers x (q with the gradient of out, h with that of what it read, through the transposed system) and writers y.
// dG = x dx for readers, -y dy for writers, and R . S' at the end of the chunk: dg is its sum over later tokens.
#pragma once
#include "gated_forward.h"

namespace {

struct BackwardScratch {
  Chunk x;
  Near near;
  float *S, *R;            // [SEGMENT + 1] states; the gradient of the state of each head of the task
  float *solved;           // [SEGMENT][P][256]: what `erased` returned
  float *v, *written;      // [P][256]: v as given; beta times what was solved
  float *rows[2];          // [P][256]: gradients of what the readers read
  float *rowsT[2], *valueT[2];
  float *P[2][2], *PT[2][2];
  float *dx[2], *dw[2];    // [nb][16][16]
  float *dG, *block;
  bool live[MOST_HEADS];  // false: R of a head is still zero, and reading it can be skipped
};

void backward_room(const Gated *c, int64_t heads, Arena &a, BackwardScratch &w) {
  const int64_t nat = c->nb * 256, wide = c->P * 256;
  chunk_room(c, a, w.x);
  w.S = a.take((SEGMENT + 1) * c->nS);
  w.R = a.take(heads * c->nS);
  w.solved = a.take(SEGMENT * wide);
  w.v = a.take(wide), w.written = a.take(wide);
  for (int i = 0; i < 2; ++i) {
    w.valueT[i] = a.take(wide), w.rows[i] = a.take(wide), w.rowsT[i] = a.take(wide);
    w.dx[i] = a.take(nat), w.dw[i] = a.take(nat);
    for (int j = 0; j < 2; ++j) w.P[i][j] = a.take(256), w.PT[i][j] = a.take(256);
  }
  w.dG = a.take(nat);
  w.block = a.take(PAIR * 256);
}

// The states after each chunk of a segment (`last`: also after the last one), and what its erasers wrote.
void recompute(const Gated *c, BackwardScratch &w, const Sequence &seq, const Heads &heads, int64_t h, int64_t t,
               int64_t chunks, bool last) {
  float room[PAIR * 256];
  for (int64_t j = 0; j < chunks; ++j) {
    Chunk &x = w.x;
    w.near.start(c, seq, heads, true);
    const bool keep = last || j + 1 < chunks;
    if (!keep && c->rule == PLAIN) return;
    load_chunk(c, x, seq, h, t + j * C, false, nullptr);
    load_natural<IDENTITY>(w.v, gated_v(c, seq, h, t + j * C), c->V, x.valid);
    if (c->rule != PLAIN) pair_scores(c, x, false);
    each_panels(c, [&](int64_t p, int64_t panels) {
      const int64_t at = p * c->nb * 256;
      const float *S = w.S + j * c->nS + at, *v = w.v + p * 256;
      float *solved = w.solved + (j * c->P + p) * 256;
      if (c->rule != PLAIN) erased(c, x, w.near.ahead, solved, v, S, panels);
      if (keep)
        carry_panels(c, x, w.near.ahead, w.S + (j + 1) * c->nS + at, S, values_of(c, x, v, solved, room, panels), panels);
    });
  }
}

// y = -f e of what the eraser wrote in one panel, where e solves the transposed system e_j += sum_{t>j} A[t][j] y_t.
void solve_back(float *y, const float *A, const float *less, const float *own, vf (&products)[C][NT]) {
  for (int n = 0; n < NT; ++n) {
    vf e[C];
    UNROLL(16) for (int t = 0; t < C; ++t) e[t] = load(y + t * 16 + n * VL);
    UNROLL(16) for (int s = 0; s < C; ++s) {
      const int t = C - 1 - s;
      const vf read = e[t] * less[t];
      UNROLL(16) for (int j = 0; j < t; ++j) e[j] += A[t * C + j] * read;
      store(y + t * 16 + n * VL, read);
    }
    UNROLL(16) for (int t = 0; t < C; ++t) products[t][n] += e[t] * load(own + t * 16 + n * VL);
  }
}

// Gradients of what the writers wrote, panel by panel, and through the system those of what h read.
void value_gradients(const Gated *c, BackwardScratch &w, const float *state, bool live, const Sequence &seq, int64_t h,
                     const float *solved) {
  Chunk &x = w.x;
  vf products[C][NT] = {};  // of e and x, for dbeta
  float less[C];
  for (int t = 0; t < C; ++t) less[t] = c->rule == DELTA ? -x.beta[t] : -1.0f;
  const int eraser = c->rule == DELTA ? K : B;
  const int64_t nb = live ? c->nb : 0;
  each_panels(c, [&](int64_t p, int64_t panels) {
    const float *g = w.rows[Q] + p * 256, *R = state + p * c->nb * 256;
    float *y = w.rows[H] + p * 256, *dv = c->dv + ((seq.b * c->T + x.t) * c->H + h) * c->V + p * 16;
    const RowsOut o = {dv, c->H * c->V, x.n, columns_left(c, p, panels), c->stream};
    if (c->rule != PLAIN) {
      const Term own = {x.AT[Q][eraser], g};
      lookup({{y, 0, 16, 16, false}, -1, {own, {}}, x.last[eraser], R, nb, c->nb * 256, &w.near.ahead}, panels);
      for (int64_t i = 0; i < panels; ++i)
        solve_back(y + i * 256, x.A[H][eraser], less, solved + (p + i) * 256, products);
    }
    const Term own = {x.AT[Q][K], g}, other = c->rule == REMOVAL ? Term{x.AT[H][K], y} : Term{};
    if (c->rule != DELTA) return lookup({o, -1, {own, other}, x.last[K], R, nb, c->nb * 256, &w.near.ahead}, panels);
    for (int64_t i = 0; i < panels; ++i) {
      vf rows[C][NT];
      for (int t = 0; t < C; ++t)
        for (int n = 0; n < NT; ++n) rows[t][n] = -load(y + i * 256 + t * 16 + n * VL);
      write_rows<C, 1>({dv + i * 16, o.stride, x.n, columns_left(c, p + i, 1), c->stream}, 0, rows, nullptr);
    }
  });
  for (int t = 0; t < x.n && c->dbeta; ++t) {
    vf all = {};
    for (int n = 0; n < NT; ++n) all += products[t][n];
    c->dbeta[(seq.b * c->T + x.t + t) * c->H + h] = x.valid[t] != 0.0f ? sum(all) : 0.0f;
  }
}

// The gradients of `sides` readers or writers from the state they meet, and from pairs unless the chunk is steep. The
// sides of `values` and of the weights lie as far apart as `x` says.
void sides(const Gated *c, BackwardScratch &w, float *const *to, int count, const float *const *scale, Slope x) {
  for (int64_t b = 0; b < c->nb; ++b) {
    Slope one = x;
    one.S += b * 256;
    if (one.fade) one.fade += b * 16;
    for (Term &term : one.terms)
      if (term.weights) term.rows += b * 256;
    for (int i = 0; i < count;) {
      const int n = count - i >= PAIR ? PAIR : 1;
      slope(one, n);
      for (int j = 0; j < n; ++j, ++i) {
        transpose16(to[i] + b * 256, w.block + j * 256, 16);
        if (scale) multiply(to[i] + b * 256, to[i] + b * 256, scale[i] + b * 256, 256);
      }
      one.xT += n * x.x_step;
      for (Term &term : one.terms)
        if (term.weights) term.weights += n * x.w_step;
    }
  }
}

void key_gradients(const Gated *c, BackwardScratch &w, const float *S, const float *R, bool live) {
  Chunk &x = w.x;
  const bool apart = x.fade == MILD || x.fade == STEEP, pairs = x.fade != STEEP;
  for (int r = 0; r < c->readers; ++r)
    for (int i = 0; i < c->writers; ++i) {
      scores<16, 1>(w.P[r][i], w.rows[r], w.valueT[i], c->P);
      keep_past(w.P[r][i], x, r);
      transpose16(w.PT[r][i], w.P[r][i], 16);
    }
  Slope reader = {w.block, S, c->nb * 256, c->P, w.rowsT[Q], w.rowsT[H] - w.rowsT[Q], nullptr, nullptr, {}, 0};
  reader.by = x.fade == HEAD ? x.near : nullptr;
  reader.w_step = w.PT[H][K] - w.PT[Q][K];
  if (pairs) reader.terms[0] = {w.PT[Q][K], x.metT[K]};
  if (pairs && c->writers > 1) reader.terms[1] = {w.PT[Q][B], x.metT[B]};
  sides(c, w, w.dx, c->readers, apart ? x.up : nullptr, reader);
  Slope writer = {w.block, R, c->nb * 256, live ? c->P : 0, w.valueT[K], w.valueT[B] - w.valueT[K], nullptr, nullptr, {}, 0};
  writer.fade = x.fade == MILD ? x.whole : nullptr;
  writer.by = x.fade == HEAD ? x.far : nullptr;
  writer.w_step = w.P[Q][B] - w.P[Q][K];
  if (pairs) writer.terms[0] = {w.P[Q][K], x.meetT[Q]};
  if (pairs && c->readers > 1) writer.terms[1] = {w.P[H][K], x.meetT[H]};
  sides(c, w, w.dw, c->writers, apart ? x.down : nullptr, writer);
  for (int r = 0; r < c->readers && !pairs; ++r)
    for (int i = 0; i < c->writers; ++i)
      steep_slopes(c, x, w.P[r][i], x.x[r], x.w[i], w.dx[r], w.dw[i], r == H && c->rule == REMOVAL);
}

void store_natural(const Gated *c, float *to, int64_t width, const Sequence &seq, int64_t h, const Chunk &x,
                   const float *from) {
  const bool past = c->stream && (uintptr_t)to % 64 == 0;  // the caches
  for (int64_t t = 0; t < x.n; ++t) {
    float *row = to + ((seq.b * c->T + x.t + t) * c->H + h) * width;
    int64_t d = 0;
    for (; d + 16 <= width; d += 16)
      UNROLL(4) for (int n = 0; n < NT; ++n) {
        const vf y = load(from + d * 16 + t * 16 + n * VL);
        past ? stream(row + d + n * VL, y) : store(row + d + n * VL, y);
      }
    for (; d < width; ++d) row[d] = from[d / 16 * 256 + t * 16 + d % 16];
  }
}

// sum_v R[d][v] S[d][v] of 16 channels.
void state_products(const Gated *c, float *to, const float *R, const float *S) {
  float rows[256];
  for (int i = 0; i < 256; i += VL) {
    vf all = {};
    for (int64_t p = 0; p < c->P; ++p) all += load(R + p * c->nb * 256 + i) * load(S + p * c->nb * 256 + i);
    store(rows + i, all);
  }
  vf total[NT];
  row_sums(total, rows);
  for (int n = 0; n < NT; ++n) store(to + n * VL, total[n]);
}

// dg of 16 tokens, from the products of what decays with its gradient; `after`: the state after the chunk, or null
// where R is zero.
void decay_gradients(const Gated *c, BackwardScratch &w, const float *R, const Sequence &seq, int64_t h,
                     const float *after) {
  const Chunk &x = w.x;
  float whole[16] = {};
  vf head[C] = {};
  for (int64_t b = 0; b < c->nb; ++b) {
    if (after) state_products(c, whole, R + b * 256, after + b * 256);
    for (int n = 0; n < NT; ++n) {
      vf later = load(whole + n * VL);
      for (int t = C - 1; t >= 0; --t) {
        const int64_t at = b * 256 + t * 16 + n * VL;
        later += load(x.x[Q] + at) * load(w.dx[Q] + at) - load(x.w[K] + at) * load(w.dw[K] + at);
        if (c->rule == DELTA) later += load(x.x[H] + at) * load(w.dx[H] + at);
        if (c->rule == REMOVAL) later -= load(x.w[B] + at) * load(w.dw[B] + at);
        head[t] += later;
        if (c->channels) store(w.dG + at, load(x.g + at) > FORGOTTEN ? later * x.valid[t] : (vf){});
        if (c->rule == REMOVAL) later += load(x.x[H] + at) * load(w.dx[H] + at);  // read before this token's decay
      }
    }
  }
  if (c->channels) return store_natural(c, c->ddecay, c->D, seq, h, x, w.dG);
  for (int64_t t = 0; t < x.n; ++t)
    c->ddecay[(seq.b * c->T + x.t + t) * c->H + h] = x.valid[t] != 0.0f && x.g[t] > FORGOTTEN ? sum(head[t]) : 0.0f;
}

void store_gradients(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h) {
  const Chunk &x = w.x;
  const int64_t nat = c->nb * 256;
  store_natural(c, c->dq, c->D, seq, h, x, w.dx[Q]);
  for (int64_t i = 0; i < nat && c->rule == DELTA; i += VL) store(w.dw[K] + i, load(w.dw[K] + i) + load(w.dx[H] + i));
  store_natural(c, c->dk, c->D, seq, h, x, w.dw[K]);
  if (c->rule != REMOVAL) return;
  for (int64_t i = 0; i < nat; i += VL) {
    const vf db = load(w.dw[B] + i);
    store(w.dx[H] + i, load(w.dx[H] + i) + db * load(x.rate + i));
    store(w.dw[B] + i, db * load(x.x[H] + i));
  }
  store_natural(c, c->derase, c->D, seq, h, x, w.dx[H]);
  store_natural(c, c->drate, c->D, seq, h, x, w.dw[B]);
}

// `head`: of the task; `j`: of the segment.
void backward_chunk(const Gated *c, BackwardScratch &w, int64_t head, const Sequence &seq, int64_t h, int64_t t,
                    int64_t j) {
  Chunk &x = w.x;
  float *R = w.R + head * c->nS;
  const bool live = w.live[head];
  load_chunk(c, x, seq, h, t, true, nullptr);
  load_natural<IDENTITY>(w.v, gated_v(c, seq, h, t), c->V, x.valid);
  load_natural<IDENTITY>(w.rows[Q], gated_g(c, seq, h, t), c->V, x.valid);
  pair_scores(c, x, true);
  for (int r = 0; r < c->readers; ++r) {
    if (x.fade != STEEP) transpose(x.meetT[r], x.meet[r], c->nb);
    for (int i = 0; i < c->writers; ++i) transpose16(x.AT[r][i], x.A[r][i], 16);
  }
  const float *solved = w.solved + j * c->P * 256;
  const Values values = values_of(c, x, w.v, solved, w.written, c->P);
  value_gradients(c, w, R, live, seq, h, solved);
  for (int r = 0; r < c->readers; ++r) transpose(w.rowsT[r], w.rows[r], c->P);
  for (int i = 0; i < c->writers; ++i) transpose(w.valueT[i], values.of[i], c->P);
  key_gradients(c, w, w.S + j * c->nS, R, live);
  if (c->ddecay) decay_gradients(c, w, R, seq, h, live ? w.S + (j + 1) * c->nS : nullptr);
  store_gradients(c, w, seq, h);
  if (t == seq.t0 && !c->ds0) return;
  w.live[head] = true;
  each_panels(c, [&](int64_t p, int64_t panels) {
    for (int64_t b = 0; b < c->nb; ++b) {
      float *at = R + (p * c->nb + b) * 256;
      const float *second = c->readers > 1 ? x.past[H] + b * 256 : nullptr, *fade = x.fade == FLAT ? nullptr : x.whole + b * 16;
      const float *rows = w.rows[Q] + p * 256, *other = w.rows[H] + p * 256;
      carry({at, at, fade, {x.past[Q] + b * 256, second}, {rows, other}, c->nb * 256, &w.near.ahead}, panels);
    }
  });
}

void backward_heads(const Gated *c, BackwardScratch &w, const Sequence &seq, const Heads &heads) {
  const int64_t length = seq.t1 - seq.t0, size = SEGMENT * C, count = heads.to - heads.from;
  const auto state = [&](int64_t h) { return (seq.at * c->H + h) * c->D * c->V; };
  for (int64_t i = 0; i < count; ++i) {
    panels_in(c, w.R + i * c->nS, c->gs ? c->gs + state(heads.from + i) : nullptr);
    w.live[i] = c->gs;
  }
  for (int64_t segment = (length + size - 1) / size; segment-- > 0;) {
    const int64_t t = seq.t0 + segment * size, left = seq.t1 - t < size ? seq.t1 - t : size;
    const int64_t chunks = (left + C - 1) / C;
    w.near.plan(segment > 0 ? t - size : t, t, count * chunks);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t h = heads.from + i;
      memcpy(w.S, c->kept + ((first_slot(c, seq) + segment) * c->H + h) * c->nS, c->nS * sizeof(float));
      recompute(c, w, seq, heads, h, t, chunks, c->ddecay && w.live[i]);
      for (int64_t j = chunks; j-- > 0;) backward_chunk(c, w, i, seq, h, t + j * C, j);
    }
  }
  for (int64_t i = 0; i < count && c->ds0; ++i) panels_out(c, c->ds0 + state(heads.from + i), w.R + i * c->nS);
}

}  // namespace
