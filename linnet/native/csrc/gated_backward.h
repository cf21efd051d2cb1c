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
  float *S, *R;            // [SEGMENT + 1] states; the gradient of the state
  float *solved;           // [SEGMENT][P][256]: what `erased` returned
  float *v, *value[2];     // [P][256] v as given; what the writers wrote
  float *rows[2];          // [P][256]: gradients of what the readers read
  float *rowsT[2], *valueT[2];
  float *P[2][2], *PT[2][2];
  float *dx[2], *dw[2];    // [nb][16][16]
  float *dG, *block, *own;
};

void backward_room(const Gated *c, Arena &a, BackwardScratch &w) {
  const int64_t nat = c->nb * 256, wide = c->P * 256;
  chunk_room(c, a, w.x);
  w.S = a.take((SEGMENT + 1) * c->nS);
  w.R = a.take(c->nS);
  w.solved = a.take(SEGMENT * wide);
  w.v = a.take(wide);
  for (int i = 0; i < 2; ++i) {
    w.value[i] = a.take(wide), w.valueT[i] = a.take(wide), w.rows[i] = a.take(wide), w.rowsT[i] = a.take(wide);
    w.dx[i] = a.take(nat), w.dw[i] = a.take(nat);
    for (int j = 0; j < 2; ++j) w.P[i][j] = a.take(256), w.PT[i][j] = a.take(256);
  }
  w.dG = a.take(nat + 256);
  w.block = a.take(256), w.own = a.take(256);
}

// The states after each chunk of a segment, and what its erasers wrote.
void recompute(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h, int64_t t, int64_t chunks) {
  int64_t unused = 0;
  float room[256];
  for (int64_t j = 0; j < chunks; ++j) {
    Chunk &x = w.x;
    load_chunk(c, x, seq, h, t + j * C, false, unused);
    load_natural<IDENTITY>(w.v, gated_v(c, seq, h, t + j * C), c->V, x.valid);
    if (c->rule != PLAIN) pair_scores(c, x, false);
    for (int64_t p = 0; p < c->P; ++p) {
      if (p < 4 && t - SEGMENT * C >= seq.t0) bring_near(c, seq, h, t + (j - SEGMENT) * C, p, true);
      const int64_t at = p * c->nb * 256;
      const float *S = w.S + j * c->nS + at, *v = w.v + p * 256;
      float *solved = w.solved + (j * c->P + p) * 256;
      if (c->rule != PLAIN) erased(c, x, solved, v, S);
      carry_panel(c, x, w.S + (j + 1) * c->nS + at, S, values_of(c, x, v, solved, room));
    }
  }
}

// Gradients of what the writers wrote, panel by panel, and through the system those of what h read.
void value_gradients(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h, const float *solved) {
  Chunk &x = w.x;
  vf products[C][NT] = {};  // of dw and x, for dbeta
  for (int64_t p = 0; p < c->P; ++p) {
    const float *g = w.rows[Q] + p * 256, *R = w.R + p * c->nb * 256;
    float *y = w.rows[H] + p * 256;
    const int64_t width = c->V - p * 16 < 16 ? c->V - p * 16 : 16;
    const RowsOut dv = {c->dv + ((seq.b * c->T + x.t) * c->H + h) * c->V + p * 16, c->H * c->V, x.n, width, false};
    if (c->rule != PLAIN) {
      const int eraser = c->rule == DELTA ? K : B;
      const float *A = x.A[H][eraser], *own = solved + p * 256;
      lookup({w.block, 16, 16, 16, false}, -1, {x.AT[Q][eraser], g}, {nullptr, nullptr}, x.last[eraser], R, c->nb);
      for (int n = 0; n < NT; ++n) {
        vf e[C];
        UNROLL(16) for (int t = 0; t < C; ++t) e[t] = load(w.block + t * 16 + n * VL);
        for (int t = C - 1; t >= 0; --t) {
          const vf read = c->rule == DELTA ? e[t] * -x.beta[t] : -e[t];
          products[t][n] += e[t] * load(own + t * 16 + n * VL);
          for (int j = 0; j < t; ++j) e[j] += A[t * C + j] * read;
          store(y + t * 16 + n * VL, read);
        }
      }
    }
    if (c->rule == DELTA) {
      vf rows[C][NT];
      for (int t = 0; t < C; ++t)
        for (int n = 0; n < NT; ++n) rows[t][n] = -load(y + t * 16 + n * VL);
      write_rows<C>(dv, 0, rows, nullptr);
    } else {
      lookup(dv, -1, {x.AT[Q][K], g}, {c->rule == REMOVAL ? x.AT[H][K] : nullptr, y}, x.last[K], R, c->nb);
    }
  }
  for (int t = 0; t < x.n && c->dbeta; ++t) {
    vf all = {};
    for (int n = 0; n < NT; ++n) all += products[t][n];
    c->dbeta[(seq.b * c->T + x.t + t) * c->H + h] = x.valid[t] != 0.0f ? sum(all) : 0.0f;
  }
}

// The gradient of one reader or writer from the state it meets, and from pairs unless the chunk is steep.
void side(const Gated *c, BackwardScratch &w, float *to, const float *state, const float *values, const float *fade,
          const float *by, const float *scale, Term one, Term two) {
  for (int64_t b = 0; b < c->nb; ++b) {
    const auto block = [&](Term x) { return Term{x.weights, x.weights ? x.rows + b * 256 : nullptr}; };
    slope(w.block, state + b * 256, c->nb * 256, c->P, values, fade ? fade + b * 16 : nullptr, by, block(one), block(two));
    transpose16(to + b * 256, w.block, 16);
    if (scale) multiply(to + b * 256, to + b * 256, scale + b * 256, 256);
  }
}

void key_gradients(const Gated *c, BackwardScratch &w, const float *S) {
  Chunk &x = w.x;
  const bool apart = x.fade == MILD || x.fade == STEEP, pairs = x.fade != STEEP;
  for (int r = 0; r < c->readers; ++r)
    for (int i = 0; i < c->writers; ++i) {
      scores<16, 1>(w.P[r][i], w.rows[r], w.valueT[i], c->P);
      keep_past(w.P[r][i], x, r);
      transpose16(w.PT[r][i], w.P[r][i], 16);
    }
  const Term none = {nullptr, nullptr};
  for (int r = 0; r < c->readers; ++r) {
    const Term one = {w.PT[r][K], x.metT[K]}, two = {w.PT[r][B], x.metT[B]};
    side(c, w, w.dx[r], S, w.rowsT[r], nullptr, x.fade == HEAD ? x.near : nullptr, apart ? x.up[r] : nullptr,
         pairs ? one : none, pairs && c->writers > 1 ? two : none);
  }
  for (int i = 0; i < c->writers; ++i) {
    const Term one = {w.P[Q][i], x.meetT[Q]}, two = {w.P[H][i], x.meetT[H]};
    side(c, w, w.dw[i], w.R, w.valueT[i], x.fade == MILD ? x.whole : nullptr, x.fade == HEAD ? x.far : nullptr,
         apart ? x.down[i] : nullptr, pairs ? one : none, pairs && c->readers > 1 ? two : none);
  }
  for (int r = 0; r < c->readers && !pairs; ++r)
    for (int i = 0; i < c->writers; ++i)
      steep_slopes(c, x, w.P[r][i], x.x[r], x.w[i], w.dx[r], w.dw[i], r == H && c->rule == REMOVAL);
}

// dg of 16 tokens, from the products of what decays with its gradient; `after`: the state after the chunk.
void decay_gradients(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h, const float *after) {
  const Chunk &x = w.x;
  float *dG = w.dG, *whole = w.dG + c->nb * 256;
  float head[C] = {};
  for (int64_t b = 0; b < c->nb; ++b) {
    for (int d = 0; d < 16; ++d) {
      vf all = {};
      for (int64_t p = 0; p < c->P; ++p)
        for (int n = 0; n < NT; ++n) {
          const int64_t at = ((p * c->nb + b) * 16 + d) * 16 + n * VL;
          all += load(w.R + at) * load(after + at);
        }
      whole[d] = sum(all);
    }
    for (int n = 0; n < NT; ++n) {
      vf later = load(whole + n * VL);
      for (int t = C - 1; t >= 0; --t) {
        const int64_t at = b * 256 + t * 16 + n * VL;
        vf own = load(x.x[Q] + at) * load(w.dx[Q] + at) - load(x.w[K] + at) * load(w.dw[K] + at);
        if (c->rule == DELTA) own += load(x.x[H] + at) * load(w.dx[H] + at);
        if (c->rule == REMOVAL) own -= load(x.w[B] + at) * load(w.dw[B] + at);
        later += own;
        store(dG + at, later);
        if (c->rule == REMOVAL) later += load(x.x[H] + at) * load(w.dx[H] + at);  // read before this token's decay
      }
    }
    for (int t = 0; t < C && c->G == 1; ++t) {
      vf all = {};
      for (int n = 0; n < NT; ++n) all += load(dG + b * 256 + t * 16 + n * VL);
      head[t] += sum(all);
    }
  }
  float *to = c->ddecay + ((seq.b * c->T + x.t) * c->H + h) * c->G;
  for (int t = 0; t < x.n; ++t, to += c->H * c->G)
    for (int64_t d = 0; d < c->G; ++d) {
      const float g = c->G == 1 ? x.g[t] : x.g[d / 16 * 256 + t * 16 + d % 16];
      const float slope = c->G == 1 ? head[t] : dG[d / 16 * 256 + t * 16 + d % 16];
      to[d] = x.valid[t] != 0.0f && g > FORGOTTEN ? slope : 0.0f;
    }
}

void store_natural(const Gated *c, float *to, const Sequence &seq, int64_t h, const Chunk &x, const float *from) {
  for (int64_t t = 0; t < x.n; ++t) {
    float *row = to + ((seq.b * c->T + x.t + t) * c->H + h) * c->D;
    for (int64_t d = 0; d < c->D; d += 16)
      memcpy(row + d, from + d * 16 + t * 16, (c->D - d < 16 ? c->D - d : 16) * sizeof(float));
  }
}

void store_gradients(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h) {
  const Chunk &x = w.x;
  const int64_t nat = c->nb * 256;
  store_natural(c, c->dq, seq, h, x, w.dx[Q]);
  for (int64_t i = 0; i < nat && c->rule == DELTA; i += VL) store(w.dw[K] + i, load(w.dw[K] + i) + load(w.dx[H] + i));
  store_natural(c, c->dk, seq, h, x, w.dw[K]);
  if (c->rule != REMOVAL) return;
  for (int64_t i = 0; i < nat; i += VL) {
    const vf db = load(w.dw[B] + i);
    store(w.dx[H] + i, load(w.dx[H] + i) + db * load(x.rate + i));
    store(w.dw[B] + i, db * load(x.x[H] + i));
  }
  store_natural(c, c->derase, seq, h, x, w.dx[H]);
  store_natural(c, c->drate, seq, h, x, w.dw[B]);
}

void backward_chunk(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h, int64_t t, int64_t j) {
  Chunk &x = w.x;
  int64_t unused = 0;
  float room[256];
  load_chunk(c, x, seq, h, t, true, unused);
  load_natural<IDENTITY>(w.v, gated_v(c, seq, h, t), c->V, x.valid);
  load_natural<IDENTITY>(w.rows[Q], gated_g(c, seq, h, t), c->V, x.valid);
  pair_scores(c, x, true);
  for (int r = 0; r < c->readers; ++r) {
    if (x.fade != STEEP) transpose(x.meetT[r], x.meet[r], c->nb);
    for (int i = 0; i < c->writers; ++i) transpose16(x.AT[r][i], x.A[r][i], 16);
  }
  const float *solved = w.solved + j * c->P * 256;
  for (int64_t p = 0; p < c->P; ++p) {
    const Values values = values_of(c, x, w.v + p * 256, solved + p * 256, room);
    for (int i = 0; i < c->writers; ++i) memcpy(w.value[i] + p * 256, values.of[i], 256 * sizeof(float));
  }
  value_gradients(c, w, seq, h, solved);
  for (int r = 0; r < c->readers; ++r) transpose(w.rowsT[r], w.rows[r], c->P);
  for (int i = 0; i < c->writers; ++i) transpose(w.valueT[i], w.value[i], c->P);
  key_gradients(c, w, w.S + j * c->nS);
  if (c->ddecay) decay_gradients(c, w, seq, h, w.S + (j + 1) * c->nS);
  store_gradients(c, w, seq, h);
  for (int64_t p = 0; p < c->P; ++p)
    for (int64_t b = 0; b < c->nb; ++b) {
      float *R = w.R + (p * c->nb + b) * 256;
      carry(R, R, x.fade == FLAT ? nullptr : x.whole + b * 16, {x.past[Q] + b * 256, w.rows[Q] + p * 256},
            {c->readers > 1 ? x.past[H] + b * 256 : nullptr, w.rows[H] + p * 256});
    }
}

void backward_head(const Gated *c, BackwardScratch &w, const Sequence &seq, int64_t h) {
  const int64_t state = (seq.at * c->H + h) * c->D * c->V, length = seq.t1 - seq.t0, size = SEGMENT * C;
  panels_in(c, w.R, c->gs ? c->gs + state : nullptr);
  for (int64_t segment = (length + size - 1) / size; segment-- > 0;) {
    const int64_t t = seq.t0 + segment * size, left = seq.t1 - t < size ? seq.t1 - t : size;
    const int64_t chunks = (left + C - 1) / C;
    memcpy(w.S, c->kept + ((first_slot(c, seq) + segment) * c->H + h) * c->nS, c->nS * sizeof(float));
    recompute(c, w, seq, h, t, chunks);
    for (int64_t j = chunks; j-- > 0;) backward_chunk(c, w, seq, h, t + j * C, j);
  }
  if (c->ds0) panels_out(c, c->ds0 + state, w.R);
}

}  // namespace
