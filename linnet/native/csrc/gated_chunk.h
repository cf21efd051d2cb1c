// One chunk of 16 tokens of the gated family: its readers and writers, scaled by the decay between them and the state.
//
//     FLAT    no decay: e^G = 1                HEAD    one decay per head: [16] factors, and L = e^{G_t - G_j} [16,16]
//     MILD    per channel, all of G > -40: readers times e^G, writers times e^-G, and both meet as they are
//     STEEP   per channel, any G: pairs of tokens one by one (steep.h), with exponents <= 0
#pragma once
#include "gated.h"

namespace {

enum Fade { FLAT, HEAD, MILD, STEEP };

// Arrays are [nb][16 tokens][16 channels] unless they say otherwise; those of a rule or fade without them stay unused.
struct Chunk {
  int64_t t, n;  // first token, tokens that exist
  Fade fade;
  float *valid, *beta, *near, *far;  // [16]; near, far: e^G and e^{G_C - G} of HEAD
  float *x[2], *w[2], *rate, *g;     // readers q and h, writers k and b as given; rate; decays of single tokens
  float *past[2];                    // readers of the state: x e^G
  float *meet[2], *met[2];           // readers and writers of pairs
  float *last[2];                    // writers of the state: w e^{G_C - G}
  float *up[2], *down[2];            // e^G of a reader; of a writer what its gradient is multiplied by
  float *whole, *L;                  // e^G_C [16 nb]; [16,16]
  float *metT[2], *meetT[2];         // [nb][16 channels][16 tokens]
  float *A[2][2], *AT[2][2];         // [16 readers][16 writers], and transposed
  float *room[10];                   // what the pointers above may point to
};

void chunk_room(const Gated *c, Arena &a, Chunk &x) {
  const int64_t nat = c->nb * 256;
  x.valid = a.take(16), x.beta = a.take(16), x.near = a.take(16), x.far = a.take(16);
  x.whole = a.take(c->nb * 16);
  x.L = a.take(256);
  x.x[Q] = a.take(nat), x.w[K] = a.take(nat), x.g = a.take(nat);
  for (float *&p : x.room) p = a.take(nat);
  x.rate = c->rule == REMOVAL ? a.take(nat) : nullptr;
  x.x[H] = c->rule == REMOVAL ? a.take(nat) : x.w[K];
  x.w[B] = c->rule == REMOVAL ? a.take(nat) : nullptr;
  for (int r = 0; r < 2; ++r) {
    x.metT[r] = a.take(nat), x.meetT[r] = a.take(nat);
    for (int i = 0; i < 2; ++i) x.A[r][i] = a.take(256), x.AT[r][i] = a.take(256);
  }
}

void multiply(float *to, const float *x, const float *by, int64_t n) {
  for (int64_t i = 0; i < n; i += VL) store(to + i, load(x + i) * load(by + i));
}

void multiply_rows(float *to, const float *x, const float *by, int64_t nb) {  // token t times by[t]
  for (int64_t b = 0; b < nb; ++b)
    UNROLL(16) for (int i = 0; i < C; ++i) UNROLL(4) for (int n = 0; n < NT; ++n) {
      const int64_t at = b * 256 + i * 16 + n * VL;
      store(to + at, load(x + at) * by[i]);
    }
}

INLINE vf fading(vf exponent) { return exp_in_range<true>(max_(exponent, -87.0f)); }

// ---- decays

// One decay per head: sums in float64, so that differences of them are exact.
void head_decay(const Gated *c, Chunk &x, Rows decay, int64_t *faults) {
  double sums[C], sum = 0.0;
  for (int i = 0; i < C; ++i) {
    const float g = x.valid[i] != 0.0f ? decay.p[i * decay.stride] : 0.0f;
    if (faults && g > 0.0f) *faults |= GROWS;
    if (faults && (g != g || g > 3e38f)) *faults |= NOT_FINITE;
    sum += x.g[i] = g < FORGOTTEN ? FORGOTTEN : g;
    sums[i] = sum;
  }
  float exponent[16];
  const auto exponentials = [&](float *to, auto of) {
    for (int j = 0; j < C; ++j) exponent[j] = (float)of(j);
    for (int n = 0; n < NT; ++n) store(to + n * VL, fading(load(exponent + n * VL)));
  };
  exponentials(x.near, [&](int j) { return sums[j]; });
  exponentials(x.far, [&](int j) { return sum - sums[j]; });
  for (int i = 0; i < C; ++i) exponentials(x.L + i * 16, [&](int j) { return j < i ? sums[i] - sums[j] : 0.0; });
  for (int64_t f = 0; f < c->nb * 16; ++f) x.whole[f] = x.near[C - 1];
}

// Sum the decays per channel of tokens 0 .. i into `to`; true if every sum stays above GENTLE.
bool channel_sums(const Gated *c, Chunk &x, float *to, int64_t *faults) {
  vf least = {}, most = {}, wild = {};
  for (int64_t b = 0; b < c->nb; ++b)
    for (int n = 0; n < NT; ++n) {
      vf sum = {};
      UNROLL(16) for (int i = 0; i < C; ++i) {
        float *at = x.g + b * 256 + i * 16 + n * VL;
        const vf g = max_(load(at), FORGOTTEN);
        most = g > most ? g : most;
        store(at, g);
        sum += g;
        store(to + (at - x.g), sum);
      }
      wild += sum * 0.0f;
      least = sum < least ? sum : least;
    }
  bool mild = true;
  for (int n = 0; n < VL; ++n) {
    if (!(least[n] > GENTLE) || wild[n] != 0.0f) mild = false;
    if (faults && most[n] > 0.0f) *faults |= GROWS;
    if (faults && wild[n] != 0.0f) *faults |= NOT_FINITE;
  }
  return mild;
}

// e^{G_C - G} per channel, from the last token back: no difference of long sums.
void channel_far(const Gated *c, const Chunk &x, float *to) {
  for (int64_t b = 0; b < c->nb; ++b)
    for (int n = 0; n < NT; ++n) {
      vf sum = {};
      for (int i = C - 1; i >= 0; --i) {
        const int64_t at = b * 256 + i * 16 + n * VL;
        store(to + at, fading(sum));
        sum += load(x.g + at);
      }
    }
}

void channel_decay(const Gated *c, Chunk &x, Rows decay, int64_t *faults) {
  const int64_t nat = c->nb * 256;
  float *near = x.room[0], *down = x.room[1];
  load_natural<IDENTITY>(x.g, decay, c->D, x.valid);
  x.fade = channel_sums(c, x, near, faults) ? MILD : STEEP;
  for (int64_t i = 0; i < nat; i += VL) {
    const vf sum = load(near + i);
    store(near + i, fading(sum));
    if (x.fade == MILD) store(down + i, exp_in_range<true>(-sum));
  }
  if (x.fade == STEEP) channel_far(c, x, down);
  for (int64_t b = 0; b < c->nb; ++b) memcpy(x.whole + b * 16, near + b * 256 + 15 * 16, 16 * sizeof(float));
  x.up[Q] = x.up[H] = near;
  x.down[K] = x.down[B] = down;
  if (c->rule != REMOVAL) return;
  x.up[H] = x.room[2];  // before the decay of the token itself
  for (int64_t b = 0; b < c->nb; ++b) {
    for (int i = 0; i < 16; ++i) x.up[H][b * 256 + i] = 1.0f;
    memcpy(x.up[H] + b * 256 + 16, near + b * 256, 15 * 16 * sizeof(float));
  }
}

// ---- keys and queries

float longest(const float *x, int64_t nb) {  // the largest |x|^2 of the 16 tokens
  float squares[256];
  for (int i = 0; i < C; ++i)
    for (int n = 0; n < NT; ++n) {
      vf square = {};
      for (int64_t b = 0; b < nb; ++b) {
        const vf y = load(x + b * 256 + i * 16 + n * VL);
        square += y * y;
      }
      store(squares + i * 16 + n * VL, square);
    }
  vf all[NT];
  row_sums(all, squares);
  float most = 0.0f;
  for (int n = 0; n < NT; ++n)
    for (int l = 0; l < VL; ++l) most = all[n][l] > most ? all[n][l] : most;
  return most;
}

void check_rates(const Gated *c, const Chunk &x, int64_t *faults) {
  vf least = {}, most = {};
  for (int64_t i = 0; i < c->nb * 256; i += VL) {
    const vf a = load(x.rate + i);
    least = a < least ? a : least;
    most = a > most ? a : most;
  }
  for (int n = 0; n < VL; ++n)
    if (least[n] < 0.0f || most[n] > 1.0f) *faults |= RATE;
}

void load_tokens(const Gated *c, Chunk &x, const Sequence &seq, int64_t h, int64_t t, bool queries, int64_t *faults) {
  x.t = t;
  x.n = seq.t1 - t < C ? seq.t1 - t : C;
  const uint8_t *mask = c->mask ? c->mask + seq.b * c->T + t : nullptr;
  for (int i = 0; i < C; ++i) x.valid[i] = i < x.n && (!mask || mask[i]) ? 1.0f : 0.0f;
  const auto load_keys = [&](float *to, Rows from) {
    if (!faults) return load_natural<IDENTITY>(to, from, c->D, x.valid);
    if (!load_values(to, from, c->D, x.valid)) *faults |= NOT_FINITE;
  };
  if (queries) load_natural<IDENTITY>(x.x[Q], gated_q(c, seq, h, t), c->D, x.valid);
  load_keys(x.w[K], gated_k(c, seq, h, t));
  if (c->rule == DELTA) {
    const Rows beta = gated_beta(c, seq, h, t);
    for (int i = 0; i < C; ++i) {
      const float y = x.beta[i] = x.valid[i] != 0.0f ? beta.p[i * beta.stride] : 0.0f;
      if (faults && y * 0.0f != 0.0f) *faults |= NOT_FINITE;
      if (faults && (y < 0.0f || y > 2.0f)) *faults |= BETA;
    }
  }
  if (c->rule == REMOVAL) {
    load_keys(x.x[H], gated_erase(c, seq, h, t));
    load_keys(x.rate, gated_rate(c, seq, h, t));
    multiply(x.w[B], x.rate, x.x[H], c->nb * 256);
    if (faults) check_rates(c, x, faults);
  }
  if (faults && c->rule != PLAIN && longest(x.x[H], c->nb) > LONGEST) *faults |= LONG_KEY;
}

// Load 16 tokens of a head and scale them; `queries`: those that read the output too; `faults`: look for some, or null.
void load_chunk(const Gated *c, Chunk &x, const Sequence &seq, int64_t h, int64_t t, bool queries, int64_t *faults) {
  load_tokens(c, x, seq, h, t, queries, faults);
  const int64_t nat = c->nb * 256;
  const int first = queries ? Q : H;
  x.fade = c->G == 0 ? FLAT : HEAD;
  if (c->channels)
    channel_decay(c, x, gated_decay(c, seq, h, t), faults);
  else if (c->G == 1)
    head_decay(c, x, gated_decay(c, seq, h, t), faults);
  for (int r = first; r < c->readers; ++r) {
    x.past[r] = x.fade == FLAT ? x.x[r] : x.room[3 + r];
    x.meet[r] = x.fade == MILD ? x.past[r] : x.x[r];
    if (x.fade == HEAD) multiply_rows(x.past[r], x.x[r], x.near, c->nb);
    if (x.fade == MILD || x.fade == STEEP) multiply(x.past[r], x.x[r], x.up[r], nat);
  }
  for (int i = 0; i < c->writers; ++i) {
    x.last[i] = x.fade == FLAT ? x.w[i] : x.room[5 + i];
    x.met[i] = x.fade == MILD ? x.room[7 + i] : x.w[i];
    if (x.fade == HEAD) multiply_rows(x.last[i], x.w[i], x.far, c->nb);
    if (x.fade == STEEP) multiply(x.last[i], x.w[i], x.down[i], nat);
    if (x.fade != MILD) continue;
    multiply(x.met[i], x.w[i], x.down[i], nat);
    for (int64_t b = 0; b < c->nb; ++b)
      for (int n = 0; n < NT; ++n) {
        const vf whole = load(x.whole + b * 16 + n * VL);
        UNROLL(16) for (int j = 0; j < C; ++j) {
          const int64_t at = b * 256 + j * 16 + n * VL;
          store(x.last[i] + at, load(x.met[i] + at) * whole);
        }
      }
  }
}

}  // namespace
