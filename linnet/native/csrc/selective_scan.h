// The selective scan:  h_t = exp(dt_t a) h_{t-1} + (dt_t x_t) b_t,  y_t = c_t . h_t,  N numbers h for every channel.
//
// A vector holds VL neighbouring channels, so the N numbers of a block of channels are N vectors, some of them in
// registers for the tokens of a chunk. The backward computes the states of a chunk again from the one kept before it,
// and walks back with G, the gradient of the state:
//
//     G_t = c_t gy_t + exp(dt_{t+1} a) G_{t+1},   db_t = sum_e G_t dt x,   dc_t = sum_e h_t gy_t,   du_t = b_t . G_t,
//     F_t = exp(dt_t a) G_t h_{t-1},   da = sum_t F_t dt_t,   ddt_t = a . F_t + du_t x_t,   dx_t = du_t dt_t
//
// The fields of a call are in scan_fields.h. M is N rounded up to whole vectors of a block, with zeros in them.
#pragma once
#include "channels.h"
#include "exp2.h"

namespace {

constexpr int BLOCK = 8, SMALL_BLOCK = 4;  // numbers in registers

INLINE int64_t padded_numbers(int64_t N) { return rounded_up(N, SMALL_BLOCK); }

// to [M][VL] = the numbers of `lanes` channels, from [lanes][N].
INLINE void channels_inside(float *to, const float *from, int64_t lanes, int64_t N) {
  if (VL == 16 && lanes == VL && N % 16 == 0) {
    for (int64_t n = 0; n < N; n += 16) transpose16(to + n * VL, from + n, N);
    return;
  }
  memset(to, 0, padded_numbers(N) * VL * sizeof(float));
  for (int64_t e = 0; e < lanes; ++e)
    for (int64_t n = 0; n < N; ++n) to[n * VL + e] = from[e * N + n];
}

INLINE void channels_outside(float *to, const float *from, int64_t lanes, int64_t N) {
  if (VL == 16 && lanes == VL && N % 16 == 0) {
    float square[256];
    for (int64_t n = 0; n < N; n += 16) {
      transpose16(square, from + n * VL, 16);
      for (int64_t e = 0; e < 16; ++e)
        for (int64_t i = 0; i < 16; i += VL) store(to + e * N + n + i, load(square + e * 16 + i));
    }
    return;
  }
  for (int64_t e = 0; e < lanes; ++e)
    for (int64_t n = 0; n < N; ++n) to[e * N + n] = from[n * VL + e];
}

// The scratch of a thread: states [blocks][M][VL] and the tokens of a chunk, [tokens][VL] or [tokens][M].
struct ScanScratch {
  int64_t M, blocks;
  float *a, *h, *b, *c, *dt, *u, *y;  // a: times log2(e);  u = dt x;  y: the output, or du
  float *gy, *f, *G, *da, *db, *dc, *kept, *decay;  // backward: f = a . F; db, dc by lane, [tokens][M][VL]
  int64_t count = 0;

  template <class Call>
  ScanScratch(const Call *call, bool backward, float *memory = nullptr) {
    M = padded_numbers(call->N), blocks = (channels_of_task(call) + VL - 1) / VL;
    const int64_t states = blocks * M * VL, tokens = call->chunk;
    const auto take = [&](int64_t n) {
      float *const p = memory ? memory + count : nullptr;
      count += rounded_up(n, 16);
      return p;
    };
    a = take(states), h = take(states), b = take(tokens * M), c = take(tokens * M);
    dt = take(tokens * VL), u = take(tokens * VL), y = take(tokens * VL);
    if (!backward) return;
    gy = take(tokens * VL), f = take(tokens * VL), G = take(states), da = take(states);
    db = take(rounded_up(tokens * M, 16) * VL), dc = take(rounded_up(tokens * M, 16) * VL);
    kept = take((tokens + 1) * BLOCK * VL), decay = take(tokens * BLOCK * VL);
  }

  // The rows of b and c of some tokens.
  template <class Call>
  void load_numbers(const Call *call, int64_t row, const Tokens &tokens) {
    const int64_t N = call->N;
    for (int64_t i = 0; i < tokens.count; ++i) {
      const float *const from_b = call->b + row * call->b_b + tokens.at[i] * call->b_t;
      const float *const from_c = call->c + row * call->c_b + tokens.at[i] * call->c_t;
      for (int64_t n = 0; n < N; ++n) b[i * M + n] = from_b[n], c[i * M + n] = from_c[n];
      for (int64_t n = N; n < M; ++n) b[i * M + n] = c[i * M + n] = 0.0f;
    }
  }

  // dt, u and y = 0 of a block of channels.
  template <class Call, class V>
  void load_channels(const Call *call, int64_t row, int64_t e, const Tokens &tokens, V v) {
    for (int64_t i = 0; i < tokens.count; ++i) {
      const vf step = v.get(call->dt + row * call->dt_b + tokens.at[i] * call->dt_t + e);
      store(dt + i * VL, step);
      store(u + i * VL, step * v.get(call->x + row * call->x_b + tokens.at[i] * call->x_t + e));
      store(y + i * VL, vf{});
    }
  }

  // a and the state of the channels e0..e1 before the first token, in blocks of VL.
  template <class Call>
  void load_states(const Call *call, float *to, const float *s, int64_t e0, int64_t e1) {
    for (int64_t e = e0; e < e1; e += VL) {
      const int64_t lanes = e1 - e < VL ? e1 - e : VL, at = (e - e0) * M;
      if (s)
        channels_inside(to + at, s + e * call->N, lanes, call->N);
      else
        memset(to + at, 0, M * VL * sizeof(float));
    }
  }

  template <class Call>
  void load_rates(const Call *call, int64_t e0, int64_t e1) {
    load_states(call, a, call->a, e0, e1);
    const int64_t count_of_all = rounded_up(e1 - e0, VL) * M;
    for (int64_t i = 0; i < count_of_all; i += VL) store(a + i, one_nan(load(a + i) * LOG2E));
  }
};

// ---- forward --------------------------------------------------------------------------------------------------------

// Rows of the inputs in the next chunk and of the output in this one, whose first token is `first`.
struct Rows {
  Soon x, dt, y;
  Rows(const linnet_selective_scan_call *c, const Sequence &q, int64_t first, int64_t e)
      : x(c->x + q.b * c->x_b + first * c->x_t + e, c->x_t, c->chunk),
        dt(c->dt + q.b * c->dt_b + first * c->dt_t + e, c->dt_t, c->chunk),
        y(c->y + (q.b * c->T + first) * c->E + e, c->E) {}
};

// NB numbers of a block from the n-th on, over `count` tokens.
template <int NB>
NOINLINE void scan_numbers(const ScanScratch &w, const Rows &rows, int64_t block, int64_t n, int64_t count) {
  const float *const a = w.a + block * w.M * VL;
  float *const h = w.h + block * w.M * VL;
  vf s[NB], rate[NB];
  UNROLL(16) for (int j = 0; j < NB; ++j) s[j] = load(h + (n + j) * VL), rate[j] = load(a + (n + j) * VL);
  for (int64_t i = 0; i < count; ++i) {
    const vf dt = load(w.dt + i * VL), u = load(w.u + i * VL);
    const float *const b = w.b + i * w.M + n, *const c = w.c + i * w.M + n;
    rows.x.read(i), rows.dt.read(i), rows.y.write(i);
    vf y[2] = {load(w.y + i * VL), vf{}};
    UNROLL(16) for (int j = 0; j < NB; ++j) {
      s[j] = exp2_any(dt * rate[j]) * s[j] + u * b[j];
      y[j % 2] += s[j] * c[j];
    }
    store(w.y + i * VL, y[0] + y[1]);
  }
  UNROLL(16) for (int j = 0; j < NB; ++j) store(h + (n + j) * VL, s[j]);
}

void selective_scan_task(const linnet_selective_scan_call *c, int64_t seq, int64_t e0, int64_t e1, float *memory) {
  ScanScratch w(c, false, memory);
  const Sequence q(c, seq);
  w.load_rates(c, e0, e1);
  w.load_states(c, w.h, c->s0 ? c->s0 + seq * c->E * c->N : nullptr, e0, e1);
  float *const y = c->y + q.b * c->T * c->E;
  for (int64_t i = 0; i < q.chunks(c->chunk); ++i) {
    const Tokens tokens(c, q, i, [&](int64_t t) { memset(y + t * c->E + e0, 0, (e1 - e0) * sizeof(float)); });
    if (c->kept)
      memcpy(c->kept + (q.slot + i) * c->width + e0 * w.M, w.h, rounded_up(e1 - e0, VL) * w.M * sizeof(float));
    w.load_numbers(c, q.b, tokens);
    along(e1 - e0, [&](int64_t e, auto v) {
      w.load_channels(c, q.b, e0 + e, tokens, v);
      const Rows rows(c, q, q.begin + i * c->chunk, e0 + e);
      int64_t n = 0;
      for (; n + BLOCK <= w.M; n += BLOCK) scan_numbers<BLOCK>(w, rows, e / VL, n, tokens.count);
      for (; n < w.M; n += SMALL_BLOCK) scan_numbers<SMALL_BLOCK>(w, rows, e / VL, n, tokens.count);
      for (int64_t k = 0; k < tokens.count; ++k) v.put(y + tokens.at[k] * c->E + e0 + e, load(w.y + k * VL));
    });
  }
  if (!c->s_out) return;
  for (int64_t e = e0; e < e1; e += VL)
    channels_outside(c->s_out + (seq * c->E + e) * c->N, w.h + (e - e0) * w.M, e1 - e < VL ? e1 - e : VL, c->N);
}

int selective_scan(const linnet_selective_scan_call *c) {
  return each_task(c, ScanScratch(c, false).count, 16.0 * c->B * c->T * c->E * c->N,
                   [=](int64_t seq, int64_t, int64_t e0, int64_t e1, float *memory) {
                     selective_scan_task(c, seq, e0, e1, memory);
                   });
}

// ---- backward -------------------------------------------------------------------------------------------------------

struct BackRows {
  Soon x, dt, g, dx, ddt;
  BackRows(const linnet_selective_scan_backward_call *c, const Sequence &q, int64_t first, int64_t e)
      : x(c->x + q.b * c->x_b + first * c->x_t + e, c->x_t, -c->chunk),
        dt(c->dt + q.b * c->dt_b + first * c->dt_t + e, c->dt_t, -c->chunk),
        g(c->g + q.b * c->g_b + first * c->g_t + e, c->g_t, -c->chunk),
        dx(c->dx + (q.b * c->T + first) * c->E + e, c->E),
        ddt(c->ddt + (q.b * c->T + first) * c->E + e, c->E) {}
};

// NB numbers of a block: forward from the state `h` before the chunk, with dc; then back with everything else.
template <int NB>
NOINLINE void scan_back_numbers(const ScanScratch &w, const BackRows &rows, int64_t block, int64_t n, int64_t count) {
  const int64_t at = (block * w.M + n) * VL;
  vf s[NB], rate[NB];
  UNROLL(16) for (int j = 0; j < NB; ++j) {
    s[j] = load(w.h + at + j * VL), rate[j] = load(w.a + at + j * VL);
    store(w.kept + j * VL, s[j]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const vf dt = load(w.dt + i * VL), u = load(w.u + i * VL), gy = load(w.gy + i * VL);
    rows.dx.write(i), rows.ddt.write(i);
    const float *const b = w.b + i * w.M + n;
    float *const dc = w.dc + (i * w.M + n) * VL;
    UNROLL(16) for (int j = 0; j < NB; ++j) {
      const vf decay = exp2_any(dt * rate[j]);
      s[j] = decay * s[j] + u * b[j];
      store(w.decay + (i * NB + j) * VL, decay);
      store(w.kept + ((i + 1) * NB + j) * VL, s[j]);
      store(dc + j * VL, load(dc + j * VL) + s[j] * gy);
    }
  }
  vf G[NB], da[NB];
  UNROLL(16) for (int j = 0; j < NB; ++j) G[j] = load(w.G + at + j * VL), da[j] = load(w.da + at + j * VL);
  for (int64_t i = count; i-- > 0;) {
    const vf dt = load(w.dt + i * VL), u = load(w.u + i * VL), gy = load(w.gy + i * VL);
    const float *const b = w.b + i * w.M + n, *const c = w.c + i * w.M + n;
    float *const db = w.db + (i * w.M + n) * VL;
    rows.x.read(i), rows.dt.read(i), rows.g.read(i);
    vf du = load(w.y + i * VL), f = load(w.f + i * VL);
    UNROLL(16) for (int j = 0; j < NB; ++j) {
      const vf g = G[j] + gy * c[j];
      du += g * b[j];
      store(db + j * VL, load(db + j * VL) + g * u);
      G[j] = g * load(w.decay + (i * NB + j) * VL);
      const vf slope = G[j] * load(w.kept + (i * NB + j) * VL);
      f += slope * load(w.a + at + j * VL);
      da[j] += slope * dt;
    }
    store(w.y + i * VL, du);
    store(w.f + i * VL, f);
  }
  UNROLL(16) for (int j = 0; j < NB; ++j) store(w.G + at + j * VL, G[j]), store(w.da + at + j * VL, da[j]);
}

// to[i] = the sum of vector i of 16, in an order of its own for each instruction set.
INLINE void sum_16_vectors(float *to, const float *from) {
#if defined(__AVX512F__)
  vf total[NT];
  row_sums(total, from);
  store(to, total[0]);
#elif defined(__AVX2__)
  UNROLL(2) for (int half = 0; half < 2; ++half) {
    __m256 v[8];
    UNROLL(8) for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(from + (half * 8 + i) * 8);
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    store(to + half * 8, (vf)_mm256_permute2f128_ps(a, b, 0x20) + (vf)_mm256_permute2f128_ps(a, b, 0x31));
  }
#else
  for (int i = 0; i < 16; ++i) to[i] = sum(load(from + i * VL));
#endif
}

// Rows [N] of `to` = the sums over the lanes of from [tokens][M][VL], which is overwritten.
INLINE void sum_over_lanes(float *to, float *from, const Tokens &tokens, int64_t N, int64_t M) {
  for (int64_t i = 0; i < tokens.count * M; i += 16) {
    float sums[16];
    sum_16_vectors(sums, from + i * VL);
    memcpy(from + i, sums, sizeof sums);
  }
  for (int64_t i = 0; i < tokens.count; ++i) memcpy(to + tokens.at[i] * N, from + i * M, N * sizeof(float));
}

// Sums over channels go to db, dc [B,T,N] of this task's group; da [E,N] is of this sequence.
struct ScanSums {
  float *db, *dc, *da;
};

void selective_scan_back_task(const linnet_selective_scan_backward_call *c, const ScanSums &sums, int64_t seq,
                              int64_t e0, int64_t e1, float *memory) {
  ScanScratch w(c, true, memory);
  const Sequence q(c, seq);
  const int64_t N = c->N, E = c->E, first = q.b * c->T, size = rounded_up(e1 - e0, VL) * w.M;
  w.load_rates(c, e0, e1);
  w.load_states(c, w.G, c->gs ? c->gs + seq * E * N : nullptr, e0, e1);
  memset(w.da, 0, size * sizeof(float));
  float *const dx = c->dx + first * E, *const ddt = c->ddt + first * E;
  float *const db = sums.db + first * N, *const dc = sums.dc + first * N;
  for (int64_t i = q.chunks(c->chunk); i-- > 0;) {
    const Tokens tokens(c, q, i, [&](int64_t t) {
      memset(dx + t * E + e0, 0, (e1 - e0) * sizeof(float));
      memset(ddt + t * E + e0, 0, (e1 - e0) * sizeof(float));
      memset(db + t * N, 0, N * sizeof(float));
      memset(dc + t * N, 0, N * sizeof(float));
    });
    memcpy(w.h, c->kept + (q.slot + i) * c->width + e0 * w.M, size * sizeof(float));
    w.load_numbers(c, q.b, tokens);
    memset(w.db, 0, tokens.count * w.M * VL * sizeof(float));
    memset(w.dc, 0, tokens.count * w.M * VL * sizeof(float));
    along(e1 - e0, [&](int64_t e, auto v) {
      w.load_channels(c, q.b, e0 + e, tokens, v);
      for (int64_t k = 0; k < tokens.count; ++k) {
        store(w.gy + k * VL, v.get(c->g + q.b * c->g_b + tokens.at[k] * c->g_t + e0 + e));
        store(w.f + k * VL, vf{});
      }
      int64_t n = 0;
      const BackRows rows(c, q, q.begin + i * c->chunk, e0 + e);
      for (; n + BLOCK <= w.M; n += BLOCK) scan_back_numbers<BLOCK>(w, rows, e / VL, n, tokens.count);
      for (; n < w.M; n += SMALL_BLOCK) scan_back_numbers<SMALL_BLOCK>(w, rows, e / VL, n, tokens.count);
      for (int64_t k = 0; k < tokens.count; ++k) {
        const int64_t at = tokens.at[k] * E + e0 + e;
        const vf du = load(w.y + k * VL), x = v.get(c->x + q.b * c->x_b + tokens.at[k] * c->x_t + e0 + e);
        v.put(dx + at, du * load(w.dt + k * VL));
        v.put(ddt + at, du * x + load(w.f + k * VL) * LN2);
      }
    });
    sum_over_lanes(db, w.db, tokens, N, w.M);
    sum_over_lanes(dc, w.dc, tokens, N, w.M);
  }
  for (int64_t e = e0; e < e1; e += VL) {
    const int64_t lanes = e1 - e < VL ? e1 - e : VL, at = (e - e0) * w.M;
    channels_outside(sums.da + e * N, w.da + at, lanes, N);
    if (c->ds0) channels_outside(c->ds0 + (seq * E + e) * N, w.G + at, lanes, N);
  }
}

int selective_scan_backward(const linnet_selective_scan_backward_call *c) {
  const int64_t each = channels_of_task(c), groups = (c->E + each - 1) / each;
  const int64_t numbers = c->B * c->T * c->N, rates = c->E * c->N;
  float *const db = (float *)malloc((2 * groups * numbers + c->S * rates + 1) * sizeof(float));
  if (!db) return LINNET_NO_MEMORY;
  float *const dc = db + groups * numbers, *const da = dc + groups * numbers;
  const int status = each_task(
      c, ScanScratch(c, true).count, 32.0 * c->B * c->T * c->E * c->N,
      [=](int64_t seq, int64_t group, int64_t e0, int64_t e1, float *memory) {
        const ScanSums sums = {db + group * numbers, dc + group * numbers, da + seq * rates};
        selective_scan_back_task(c, sums, seq, e0, e1, memory);
      });
  if (status == LINNET_OK) {
    add_parts(c, c->db, db, groups, numbers);
    add_parts(c, c->dc, dc, groups, numbers);
    add_parts(c, c->da, da, c->S, rates);
  }
  free(db);
  return status;
}

}  // namespace
