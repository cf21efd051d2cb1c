// Whether other programs want the cores too: see load.cpp.
#pragma once
#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdint.h>

extern "C" {
void linnet_notice(int64_t threads);  // before work for so many threads: measures the load when it is time to
int linnet_busy(void);                // 1: other programs want the cores, and threads wait by sleeping
int linnet_hold(int64_t busy, int64_t threads);  // for tests: 0 never, 1 always, -1 as measured; returns 0: cannot
}
