// The gated family split into tasks for the threads: some heads of a sequence each, forward or backward. Every head sums
// in a fixed order, so the number of threads does not change a bit.
#include "gated_backward.h"
#include "isa.h"
#include "load.h"

namespace {

int gated_threads(const Gated *c, int64_t tasks, double products) {
#ifdef _OPENMP
  if (products * c->B * c->T * c->H * c->nb * c->P * 256.0 < 2e6 || c->threads < 2 || omp_in_parallel()) return 1;
  linnet_notice(c->threads);
  return (int)(tasks < c->threads ? tasks : c->threads);
#else
  (void)c, (void)tasks, (void)products;
  return 1;
#endif
}

// task(scratch, sequence, heads) for all, with scratch that `room` lays out.
template <class Scratch, class Room, class Task>
int gated_tasks(const Gated *c, int64_t heads, double products, Room room, Task task) {
  const int64_t groups = (c->H + heads - 1) / heads, tasks = c->S * groups;
  const int threads = gated_threads(c, tasks, products);
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch w;
    Arena sizes, arena;
    room(c, heads, sizes, w);
    void *memory = aligned_alloc(64, (sizes.used * sizeof(float) + 63) / 64 * 64);
    arena.p = (float *)memory;
    if (memory) room(c, heads, arena, w);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) {
      const int64_t from = i % groups * heads, to = from + heads < c->H ? from + heads : c->H;
      if (memory)
        task(w, sequence(c, i / groups), Heads{from, to});
      else
        status = LINNET_NO_MEMORY;
    }
    if (c->stream) stream_fence();
    free(memory);
  }
  return status;
}

int gated_forward(const linnet_gated_forward_call *call) {
  const Gated all = gated_call(call), *const c = &all;
  int64_t faults = 0;
  const auto task = [&](ForwardScratch &w, const Sequence &seq, const Heads &heads) {
    int64_t own = 0;
    forward_heads(c, w, seq, heads, own);
    if (own) __atomic_fetch_or(&faults, own, __ATOMIC_RELAXED);
  };
  const double products = c->rule == PLAIN ? 4.0 : 6.0;
  const int status = gated_tasks<ForwardScratch>(c, heads_of_task(c, C, false), products, forward_room, task);
  *c->faults = faults;
  return status;
}

int gated_backward(const linnet_gated_backward_call *call) {
  const Gated all = gated_call(call), *const c = &all;
  const auto task = [&](BackwardScratch &w, const Sequence &seq, const Heads &heads) {
    backward_heads(c, w, seq, heads);
  };
  return gated_tasks<BackwardScratch>(c, heads_of_task(c, SEGMENT * C, true), 12.0, backward_room, task);
}

}  // namespace

LINNET_GATED_CALLS(LINNET_DEFINE)
