// The gated family split into tasks for the threads: one for each head of each sequence, forward or backward. Each sums
// in a fixed order, so the number of threads does not change a bit.
#include "gated_backward.h"
#include "isa.h"
#include "load.h"

namespace {

int gated_threads(const Gated *c, double products) {
#ifdef _OPENMP
  const int64_t tasks = c->S * c->H;
  if (products * c->B * c->T * c->H * c->nb * c->P * 256.0 < 2e6 || c->threads < 2 || omp_in_parallel()) return 1;
  linnet_notice(c->threads);
  return (int)(tasks < c->threads ? tasks : c->threads);
#else
  (void)c, (void)products;
  return 1;
#endif
}

// task(scratch, sequence, head) for all, with scratch that `room` lays out.
template <class Scratch, class Room, class Task>
int gated_tasks(const Gated *c, double products, Room room, Task task) {
  const int threads = gated_threads(c, products);
  int status = LINNET_OK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Scratch w;
    Arena sizes;
    room(c, sizes, w);
    void *memory = aligned_alloc(64, (sizes.used * sizeof(float) + 63) / 64 * 64);
    Arena arena;
    arena.p = (float *)memory;
    if (memory) room(c, arena, w);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < c->S * c->H; ++i) {
      if (memory)
        task(w, sequence(c, i / c->H), i % c->H);
      else
        status = LINNET_NO_MEMORY;
    }
    free(memory);
  }
  return status;
}

int gated(const linnet_gated_call *call) {
  const Gated all = gated_call(call), *const c = &all;
  int64_t faults = 0;
  const int status = gated_tasks<ForwardScratch>(c, c->rule == PLAIN ? 4.0 : 6.0, forward_room,
                                                 [&](ForwardScratch &w, const Sequence &seq, int64_t h) {
                                                   int64_t own = 0;
                                                   forward_head(c, w, seq, h, own);
                                                   if (own) __atomic_fetch_or(&faults, own, __ATOMIC_RELAXED);
                                                 });
  *c->faults = faults;
  return status;
}

int gated_backward(const linnet_gated_backward_call *call) {
  const Gated all = gated_call(call), *const c = &all;
  return gated_tasks<BackwardScratch>(
      c, 12.0, backward_room,
      [&](BackwardScratch &w, const Sequence &seq, int64_t h) { backward_head(c, w, seq, h); });
}

}  // namespace

LINNET_GATED_CALLS(LINNET_DEFINE)
