// Linear attention split into tasks for the threads.
//
// Tasks are (sequence, heads, value columns) in the forward and (sequence, heads, sweep) in the backward. Each sums in
// a fixed order that does not depend on the number of threads, so neither does the result.
#include "backward.h"
#include "forward.h"
#include "isa.h"
#include "load.h"
#include "step.h"

namespace {

int threads_for(const Attention *c, int64_t tasks, double flops) {
#ifdef _OPENMP
  if (flops < 2e6 || c->threads < 2 || omp_in_parallel())
    return 1;  // below this, waking threads costs more than it saves
  linnet_notice(c->threads);
  return (int)(tasks < c->threads ? tasks : c->threads);
#else
  (void)c, (void)tasks, (void)flops;
  return 1;
#endif
}

constexpr int64_t MAX_GROUP = 8;

// Products of features and values over all tokens: the unit of work.
double work(const Shape &s) {
  const Attention *c = s.c;
  return (double)(c->Tq > c->Tk ? c->Tq : c->Tk) * c->B * c->H * s.Fp * c->V;
}

// True when an output is better written past the caches: whole lines, and more of them than the caches hold. Ordinary
// stores to memory that is not cached wait for it, and every store of the state waits behind them.
constexpr int64_t STREAM_BYTES = 1 << 20;

bool streams(const float *p, int64_t count) { return (uintptr_t)p % 64 == 0 && count * 4 > STREAM_BYTES; }

// Several heads of a sequence share a task and so read memory in order, as long as every thread still has tasks.
int64_t heads_per_task(const Attention *c) {
  int64_t group = 1;
  if (c->q_strides.h > c->q_strides.t || c->k_strides.h > c->k_strides.t || c->v_strides.h > c->v_strides.t)
    return group;  // heads lie apart: each reads in order by itself
  while (group < MAX_GROUP && group * 2 <= c->H && c->S * c->H >= group * 2 * c->threads) group *= 2;
  return group;
}

// Long sequences, and streams continued from call to call, which may be of any length by now.
bool gather_errors(const Attention *c) { return c->Tk > LONG || c->s0; }

int forward(const linnet_forward_call *call) {
  const Attention all = attention(call), *const c = &all;
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
      forward_task(s, w, st, seq, h0, h0 + group < c->H ? h0 + group : c->H,
                   {p0 * 16, left < panels * 16 ? left : panels * 16, panels});
    }
    if (ok) free(w.memory);
  }
  return status;
}

int backward(const linnet_backward_call *call) {
  const Attention all = attention(call), *const c = &all;
  Shape s = shape_of(c);
  s.stream_v = c->V % 16 == 0 && streams(c->dv, c->B * c->Tk * c->H * c->V);
  s.stream_d =
      c->D % 16 == 0 && streams(c->dq, c->B * c->Tq * c->H * c->D) && streams(c->dk, c->B * c->Tk * c->H * c->D);
  const int64_t group = heads_per_task(c), groups = (c->H + group - 1) / group, tasks = 2 * c->S * groups;
  const int threads = threads_for(c, tasks, 10.0 * work(s));
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch w;
    Stream st[MAX_GROUP];
    const bool ok = w.make(s, s.P, group, false);  // gradients need no more digits than they have
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

int step(const linnet_step_call *call) {
  const Attention all = attention(call), *const c = &all;
  const Shape s = shape_of(c);
  const int64_t tasks = c->S * c->H;
  const int threads = threads_for(c, tasks, 16.0 * tasks * c->F * c->V);  // memory-bound: costs more than its flops
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

LINNET_LINEAR_CALLS(LINNET_DEFINE)
