// In-context regression transformers: a batch cut into blocks of lanes (gram.h), on threads, and training by Adam.
//
//     icl_gradient  sums of losses and gradients      icl_answers, icl_jacobian  w, and dw / d(matrix entries)
//     icl_train     steps of Adam (Kingma and Ba 2015), each on fresh sequences
#pragma once
#include <math.h>
#include <stdlib.h>

#include "gram.h"
#include "load.h"

namespace {

// Blocks are summed in groups whose number and borders depend on the blocks alone, not on the threads that process
// them; so neither does the result.
INLINE int64_t count_groups(int64_t blocks) {
  const int64_t fewest = blocks < 8 ? blocks : 8, most = blocks / 16 < 64 ? blocks / 16 : 64;
  return fewest > most ? fewest : most;
}

// Memory for calls of one shape, allocated once for all the steps of a training run.
template <class T, int N>
struct Bench {
  typedef typename Lanes<T>::type V;
  static constexpr int W = Lab<T, N>::W;
  const Regression *c;
  int64_t blocks, groups, sums, count, each, threads;
  char *memory, *scratch;
  T *p, *q;
  double *totals;  // [groups, sums + 2]

  bool make(const Regression *call) {
    c = call;
    blocks = (c->samples + W - 1) / W, groups = count_groups(blocks);
    sums = Lab<T, N>::sums(c), count = c->diagonal ? c->L * 4 : sums / 2;
    each = (Lab<T, N>::vectors(c) + sums) * (int64_t)sizeof(V), threads = c->threads < groups ? c->threads : groups;
    const int64_t numbers = 2 * count * (int64_t)sizeof(T) + groups * (sums + 2) * 8;
    memory = (char *)aligned_alloc(64, (threads * each + numbers + 63) / 64 * 64);
    if (!memory) return false;
    scratch = memory, totals = (double *)(memory + threads * each);
    p = (T *)(totals + groups * (sums + 2)), q = p + count;
    return true;
  }

  // The parameters in the kernel's precision; of a diagonal model the omegas, sums over heads of p_row q_column.
  void read_parameters() {
    if (!c->diagonal) {
      for (int64_t i = 0; i < count; ++i) p[i] = (T)c->p[i], q[i] = (T)c->q[i];
      return;
    }
    for (int64_t l = 0; l < c->L; ++l)
      for (int i = 0; i < 4; ++i) {
        double sum = 0;
        for (int64_t k = l * c->K; k < (l + 1) * c->K; ++k) sum += c->p[k * 2 + i / 2] * c->q[k * 2 + i % 2];
        p[l * 4 + i] = (T)sum;
      }
  }

  void run() {
    read_parameters();
    linnet_notice(threads);
#pragma omp parallel num_threads((int)threads) if (threads > 1)
    {
#ifdef _OPENMP
      const int me = omp_get_thread_num();
#else
      const int me = 0;
#endif
      V *mine = (V *)(scratch + me * each), *total = mine + Lab<T, N>::vectors(c);
      Lab<T, N> lab;
      lab.set(c, p, q, mine, total);
#pragma omp for schedule(dynamic, 1)
      for (int64_t group = 0; group < groups; ++group) {
        for (int64_t i = 0; i < sums; ++i) total[i] = V{};
        lab.loss = lab.bad = V{};
        for (int64_t block = blocks * group / groups; block < blocks * (group + 1) / groups; ++block)
          run_block(lab, block);
        double *out = totals + group * (sums + 2);
        for (int64_t i = 0; i < sums; ++i) out[i] = 2 * (double)lane_sum(total[i]);
        out[sums] = lane_sum(lab.loss), out[sums + 1] = lane_sum(lab.bad);
      }
    }
    if (!c->out) add_up();
  }

  static void run_block(Lab<T, N> &lab, int64_t block) {
    if constexpr (sizeof(T) == sizeof(float))  // fresh sequences are drawn in float only
      if (!lab.c->data) return lab.fresh(block);
    lab.stored(block);
  }

  double sum(int64_t i) const {
    double out = 0;
    for (int64_t group = 0; group < groups; ++group) out += totals[group * (sums + 2) + i];
    return out;
  }

  void add_up() {
    c->loss[0] = sum(sums), c->loss[1] = sum(sums + 1);
    if (!c->diagonal) {
      for (int64_t i = 0; i < count; ++i) c->dp[i] = sum(i), c->dq[i] = sum(count + i);
      return;
    }
    for (int64_t l = 0; l < c->L; ++l) {
      const double g[4] = {sum(l * 4), sum(l * 4 + 1), sum(l * 4 + 2), sum(l * 4 + 3)};
      for (int64_t k = l * c->K; k < (l + 1) * c->K; ++k) {
        const double *P = c->p + k * 2, *Q = c->q + k * 2;
        for (int i = 0; i < 2; ++i) {
          c->dp[k * 2 + i] = g[i * 2] * Q[0] + g[i * 2 + 1] * Q[1];
          c->dq[k * 2 + i] = g[i] * P[0] + g[2 + i] * P[1];
        }
      }
    }
  }
};

// One step of Adam on p and q; a gradient that is not finite changes nothing.
bool adam(const Regression *c, int64_t step, double scale) {
  const int64_t half = c->L * c->K * (c->diagonal ? 2 : c->E * c->E);
  double square = 0;
  for (int64_t i = 0; i < half; ++i) square += c->dp[i] * c->dp[i] + c->dq[i] * c->dq[i];
  const double norm = sqrt(square) * scale;
  if (!(norm < 1e30)) return false;
  if (c->clip > 0 && norm > c->clip) scale *= c->clip / norm;
  const double t = (double)(c->done + step + 1);
  const double fix1 = 1 / (1 - pow(c->beta1, t)), fix2 = 1 / (1 - pow(c->beta2, t)), rate = c->rate[step];
  for (int64_t i = 0; i < 2 * half; ++i) {
    if (c->frozen && c->frozen[i]) continue;
    const double g = (i < half ? c->dp[i] : c->dq[i - half]) * scale;
    c->m[i] += (1 - c->beta1) * (g - c->m[i]);
    c->v[i] += (1 - c->beta2) * (g * g - c->v[i]);
    (i < half ? c->p[i] : c->q[i - half]) -= rate * c->m[i] * fix1 / (sqrt(c->v[i] * fix2) + c->eps);
  }
  return true;
}

template <class T, int N>
int icl_typed(const Regression *call) {
  Regression now = *call;
  Bench<T, N> bench;
  if (!bench.make(&now)) return LINNET_NO_MEMORY;
  if (!now.train) {
    bench.run();
  } else {
    double left_out = 0;
    for (int64_t step = 0; step < now.steps; ++step, now.first += now.samples) {
      bench.run();
      left_out += now.loss[1];
      now.curve[step] = now.loss[0] / (double)now.samples;
      if (!adam(&now, step, 1.0 / (double)now.samples)) now.curve[step] = NAN;
    }
    now.loss[1] = left_out;
  }
  free(bench.memory);
  return LINNET_OK;
}

int regress(const Regression &c) {
  if (c.E == 11) return c.wide ? icl_typed<double, 11>(&c) : icl_typed<float, 11>(&c);
  return c.wide ? icl_typed<double, 0>(&c) : icl_typed<float, 0>(&c);
}

int icl_gradient(const linnet_icl_gradient_call *c) { return regress(regression(c)); }

int icl_answers(const linnet_icl_answers_call *c) { return regress(regression(c)); }

int icl_jacobian(const linnet_icl_jacobian_call *c) {
  Regression r = regression(c);
  r.jacobian = true;
  return regress(r);
}

int icl_train(const linnet_icl_train_call *c) {
  Regression r = regression(c);
  r.train = true;
  return regress(r);
}

}  // namespace
