// What the scans share: their work as tasks of one sequence and some channels, and chunk by chunk the real tokens.
//
// Which channels make a task follows from the sizes alone, and sums over tasks are added in their order: the number of
// threads changes no bit. Inside a task a vector holds neighbouring channels, so nothing depends on another lane.
#pragma once
#include "lanes.h"
#include "linnet.h"
#include "load.h"

#include <stdlib.h>

namespace {

constexpr int64_t LONGEST_CHUNK = LINNET_SCAN_CHUNK;

// Tokens [begin,end) of row b, and where the first state of the sequence is kept.
struct Sequence {
  int64_t b, begin, end, slot;
  template <class Call>
  Sequence(const Call *c, int64_t s) {
    const int64_t first = c->cu ? c->cu[s] : s * c->T;
    b = c->cu ? 0 : s;
    begin = c->cu ? first : 0;
    end = c->cu ? c->cu[s + 1] : c->T;
    slot = first / c->chunk + s;
  }
  int64_t chunks(int64_t size) const { return (end - begin + size - 1) / size; }
};

// The tokens of chunk i of a sequence that are not padding.
struct Tokens {
  int64_t count = 0, at[LONGEST_CHUNK];
  // skipped(t): called for the others.
  template <class Call, class F>
  Tokens(const Call *c, const Sequence &q, int64_t i, F skipped) {
    const int64_t t0 = q.begin + i * c->chunk, t1 = t0 + c->chunk < q.end ? t0 + c->chunk : q.end;
    for (int64_t t = t0; t < t1; ++t)
      if (!c->mask || c->mask[q.b * c->T + t])
        at[count++] = t;
      else
        skipped(t);
  }
};

// Rows that will be needed soon, one at each token of the chunk in hand. Those of a few channels lie too far apart for
// the processor to foresee them: without these hints a scan spends half its time waiting. An address outside of the
// tensor does no harm.
struct Soon {
  uintptr_t at;
  int64_t step;
  // Rows `stride` floats apart, the first of them `skip` rows from p.
  Soon(const float *p, int64_t stride, int64_t skip = 0)
      : at((uintptr_t)p + (uintptr_t)(skip * stride * (int64_t)sizeof(float))), step(stride * (int64_t)sizeof(float)) {}
  MEMBER void read(int64_t i) const { __builtin_prefetch((const void *)(at + (uintptr_t)(i * step))); }
  MEMBER void write(int64_t i) const { __builtin_prefetch((const void *)(at + (uintptr_t)(i * step)), 1); }
};

INLINE int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Channels of a task: an eighth of them all, if that is neither too little for its overhead nor too much for the cache.
template <class Call>
int64_t channels_of_task(const Call *c) {
  const int64_t each = rounded_up((c->E + 7) / 8, 16);
  return each < 128 ? each : 128;
}

// Run f(s, group, e0, e1, scratch) for all sequences and groups of channels, each thread with `floats` of scratch.
template <class Call, class F>
int each_task(const Call *c, int64_t floats, double flops, F f) {
  const int64_t each = channels_of_task(c), groups = (c->E + each - 1) / each, tasks = c->S * groups;
  int threads = 1;
#ifdef _OPENMP
  if (flops >= 1e6 && c->threads > 1 && tasks > 1 && !omp_in_parallel()) {
    linnet_notice(c->threads);
    threads = (int)(tasks < c->threads ? tasks : c->threads);
  }
#endif
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    char *const memory = (char *)malloc(floats * sizeof(float) + 64);
    float *const scratch = (float *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t group = task % groups, e0 = group * each;
      if (memory)
        f(task / groups, group, e0, e0 + each < c->E ? e0 + each : c->E, scratch);
      else
        status = LINNET_NO_MEMORY;
    }
    free(memory);
  }
  return status;
}

// to[i] = the sum of `number` tensors of `count` floats, one after the other, in their order; to may be parts.
template <class Call>
void add_parts(const Call *c, float *to, const float *parts, int64_t number, int64_t count) {
  constexpr int64_t PIECE = 4096;
  const int64_t blocks = (count + PIECE - 1) / PIECE;
  const bool parallel = c->threads > 1 && number * count > 1 << 17;
  (void)parallel;
#pragma omp parallel for schedule(static) num_threads((int)c->threads) if (parallel)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * PIECE, left = count - first;
    along(left < PIECE ? left : PIECE, [&](int64_t i, auto v) {
      vf sum = v.get(parts + first + i);
      for (int64_t part = 1; part < number; ++part) sum += v.get(parts + part * count + first + i);
      v.put(to + first + i, sum);
    });
  }
}

}  // namespace
