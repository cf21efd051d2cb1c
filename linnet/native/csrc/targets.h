// What a transformer is trained towards: the ridge solution with the true noise, or the best estimate without it.
//
//     ridge      w = (Sigma + sigma² I)^-1 alpha
//     posterior  E[w | S] = sum_g p(g | S) (Sigma + g² I)^-1 alpha over a grid of noise levels g,
//               log p(g | S) = log prior - (n - d) log g - 1/2 log det(Sigma + g² I) - (lambda - <alpha, w_g>) / (2 g²)
// with S = [[Sigma, alpha], [alphaᵀ, lambda]] [E,E], d = E - 1, one sequence in each lane.
#pragma once
#include "draw.h"

namespace {

// The ridge solution of every lane: x [d] = (Sigma + penalty I)^-1 alpha by L D Lᵀ in l [d*d].
NOINLINE void ridge(vf *x, vf *l, const vf *s, vf penalty, int64_t E) {
  const int64_t d = E - 1;
  for (int64_t j = 0; j < d; ++j) {
    for (int64_t i = j; i < d; ++i) {
      vf sum = s[i * E + j];
      if (i == j) sum += penalty;
      for (int64_t k = 0; k < j; ++k) sum -= l[k * d + i] * l[j * d + k];  // l[k*d+i] = L_ik D_k, l[j*d+k] = L_jk
      l[j * d + i] = sum;  // above the diagonal: L D; on it: D
    }
    const vf inverse = 1.0f / l[j * d + j];
    for (int64_t i = j + 1; i < d; ++i) l[i * d + j] = l[j * d + i] * inverse;
  }
  for (int64_t i = 0; i < d; ++i) {
    x[i] = s[i * E + d];
    for (int64_t k = 0; k < i; ++k) x[i] -= l[i * d + k] * x[k];
  }
  for (int64_t i = d; i-- > 0;) {
    x[i] = x[i] / l[i * d + i];
    for (int64_t k = i + 1; k < d; ++k) x[i] -= l[k * d + i] * x[k];
  }
}

// S made tridiagonal by reflections I - beta v vᵀ that leave its last row in place (Householder): a [E,E] holds S at
// first, then its new diagonal, and v in row r > 1 up to the diagonal, with beta [r]; off [d] is beside the diagonal.
// work [E].
NOINLINE void tridiagonal(vf *a, vf *off, vf *beta, vf *work, int64_t E) {
  for (int64_t r = E - 1; r > 1; --r) {
    vf *v = a + r * E;
    vf square = {}, dot = {};
    for (int64_t j = 0; j < r; ++j) square += v[j] * v[j];
    const vf root = sqrt_(square), end = v[r - 1];
    off[r - 1] = end > 0.0f ? -root : root;
    v[r - 1] -= off[r - 1];
    beta[r] = square > 1e-30f ? 1.0f / (square - off[r - 1] * end) : vf{};
    for (int64_t i = 0; i < r; ++i) {
      vf sum = {};
      for (int64_t j = 0; j < r; ++j) sum += a[j * E + i] * v[j];
      work[i] = sum * beta[r];
      dot += work[i] * v[i];
    }
    const vf half = 0.5f * beta[r] * dot;
    for (int64_t i = 0; i < r; ++i) work[i] -= half * v[i];
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < r; ++j) a[i * E + j] -= v[i] * work[j] + work[i] * v[j];
  }
  off[0] = a[E];
}

constexpr double FLOOR = 1e-10;  // of sigma²: no noise at all is this much

// The posterior mean of w over a grid of sigma with log prior weights: sum_g p(g | data) ridge(g²). In the basis of the
// tridiagonal form a ridge solution takes d steps: pivots from the top down, w from the bottom up. work [E*E + 5 E].
NOINLINE void posterior_mean(vf *out, vf *work, const vf *s, const double *grid, const double *log_weight,
                             int64_t points, int64_t n, int64_t E) {
  const int64_t d = E - 1;
  vf *a = work, *off = a + E * E, *beta = off + E, *inverse = beta + E, *square = inverse + E;
  for (int64_t i = 0; i < E * E; ++i) a[i] = s[i];
  tridiagonal(a, off, beta, inverse, E);
  for (int64_t i = 0; i < d; ++i) out[i] = vf{}, square[i] = off[i] * off[i];
  vf best = splat(-1e30f), total = {};
  for (int64_t g = 0; g < points; ++g) {
    const double known = grid[g] * grid[g] > FLOOR ? grid[g] * grid[g] : FLOOR;
    const float penalty = (float)known;
    vf logdet = {}, pivots = splat(1.0f);
    for (int64_t i = 0; i < d; ++i) {
      vf pivot = a[i * E + i] + penalty;
      if (i > 0) pivot -= square[i - 1] * inverse[i - 1];
      pivot = max_(pivot, penalty);  // which it is in exact arithmetic
      inverse[i] = 1.0f / pivot;
      pivots *= pivot;
      if (i % 4 == 3 || i == d - 1) logdet += log_(pivots), pivots = splat(1.0f);
    }
    const vf rest = s[d * E + d] - square[d - 1] * inverse[d - 1];
    const float prior = (float)(log_weight[g] - 0.5 * (double)(n - d) * __builtin_log(known));
    const vf log_p = prior - 0.5f * (logdet + rest / penalty);
    const vf top = log_p > best ? log_p : best;
    const vf fade = exp_in_range<false>(max_(best - top, -87.0f));
    const vf weight = exp_in_range<false>(max_(log_p - top, -87.0f));
    total = total * fade + weight;
    vf x = weight;
    for (int64_t i = d; i-- > 0;) {
      x *= off[i] * inverse[i];
      out[i] = out[i] * fade + x;
      x = -x;
    }
    best = top;
  }
  for (int64_t i = 0; i < d; ++i) out[i] = out[i] / total;
  for (int64_t r = 2; r < E; ++r) {
    const vf *v = a + r * E;
    vf dot = {};
    for (int64_t j = 0; j < r; ++j) dot += v[j] * out[j];
    dot *= beta[r];
    for (int64_t j = 0; j < r; ++j) out[j] -= dot * v[j];
  }
}

}  // namespace
