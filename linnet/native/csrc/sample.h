// Draw a value from the distribution an image model predicts, by two uniform numbers: the first picks an entry where
// the cumulative sum passes it, and of a mixture of logistics the second picks the point of the chosen one.
//
// The same formulas in the same double precision as linnet/models/mixture.py, which is the reference.
#pragma once
#include <math.h>
#include <stdint.h>

// The entry at which the cumulative sum of softmax(scores) passes u in [0, 1).
static int64_t choose(const float *scores, int64_t n, double u) {
  double top = scores[0], sum = 0.0, height = 0.0;
  for (int64_t i = 1; i < n; ++i) top = scores[i] > top ? scores[i] : top;
  for (int64_t i = 0; i < n; ++i) sum += exp((double)scores[i] - top);
  for (int64_t i = 0; i + 1 < n; ++i) {
    height += exp((double)scores[i] - top) / sum;
    if (!(height <= u)) return i;
  }
  return n - 1;
}

static int64_t choose_logistic(const float *params, int64_t K, const double *u, int64_t levels) {
  const int64_t k = choose(params, K, u[0]);
  double log_scale = params[2 * K + k];
  log_scale = log_scale < -7.0 ? -7.0 : log_scale > 40.0 ? 40.0 : log_scale;
  const double x = params[K + k] + exp(log_scale) * log(u[1] / (1.0 - u[1]));
  const double v = nearbyint((x + 1.0) * ((double)(levels - 1) / 2.0));
  return v >= (double)(levels - 1) ? levels - 1 : v > 0.0 ? (int64_t)v : 0;
}
