// The exported functions: check what can be checked, pick the widest instruction set, run.
//
// Nothing here trusts its caller with memory: sizes must be non-negative, packed starts must rise from 0 to T.
#include "linnet.h"
#include "sample.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" const linnet_table linnet_table_base;
#ifdef LINNET_HAVE_AVX2
extern "C" const linnet_table linnet_table_avx2;
#endif
#ifdef LINNET_HAVE_AVX512
extern "C" const linnet_table linnet_table_avx512;
#endif

static const linnet_table *chosen = nullptr;

// The tables this processor can run, widest first; returns how many.
static int available(const linnet_table **tables) {
  int n = 0;
#ifdef LINNET_HAVE_AVX512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    tables[n++] = &linnet_table_avx512;
#endif
#ifdef LINNET_HAVE_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables[n++] = &linnet_table_avx2;
#endif
  tables[n++] = &linnet_table_base;
  return n;
}

static const linnet_table *table() {
  if (!chosen) {
    const linnet_table *tables[3];
    available(tables);
    chosen = tables[0];
  }
  return chosen;
}

static int check(const linnet_call *c) {
  const int64_t sizes[] = {c->S, c->B, c->Tq, c->Tk, c->H};
  for (int64_t n : sizes)
    if (n < 0) return LINNET_BAD_ARGUMENT;
  if (c->D < 1 || c->V < 1 || c->F < 1 || c->kind < 0 || c->kind > 5 || c->threads < 1) return LINNET_BAD_ARGUMENT;
  int64_t F = c->D;
  if (c->kind == 5) F = (c->c0 > 0) + (c->c1 > 0) * c->D + (c->c2 > 0) * (c->D * (c->D + 1) / 2);
  if (c->F != F || (c->causal && c->Tq != c->Tk)) return LINNET_BAD_ARGUMENT;
  if (!c->cu) return c->S == c->B ? LINNET_OK : LINNET_BAD_ARGUMENT;
  if (c->B != 1 || c->Tq != c->Tk || c->cu[0] != 0 || c->cu[c->S] != c->Tq) return LINNET_BAD_CU;
  for (int64_t i = 0; i < c->S; ++i)
    if (c->cu[i] > c->cu[i + 1]) return LINNET_BAD_CU;
  return LINNET_OK;
}

EXPORT int linnet_abi_version(void) { return LINNET_ABI; }

EXPORT int linnet_call_size(void) { return (int)sizeof(linnet_call); }

EXPORT int linnet_rows_size(void) { return (int)sizeof(linnet_rows); }

EXPORT const char *linnet_isa(void) { return table()->isa; }

// Comma-separated names of the instruction sets that could run here, widest first.
EXPORT const char *linnet_isas(void) {
  static char names[64];
  const linnet_table *tables[3];
  const int n = available(tables);
  names[0] = 0;
  for (int i = 0; i < n; ++i) {
    if (i) strcat(names, ",");
    strcat(names, tables[i]->isa);
  }
  return names;
}

// Runs another instruction set from now on (for tests and benchmarks); 0 when this processor has it.
EXPORT int linnet_use_isa(const char *isa) {
  const linnet_table *tables[3];
  const int n = available(tables);
  for (int i = 0; i < n; ++i)
    if (!strcmp(tables[i]->isa, isa)) {
      chosen = tables[i];
      return LINNET_OK;
    }
  return LINNET_BAD_ARGUMENT;
}

EXPORT int linnet_openmp(void) {
#ifdef _OPENMP
  return 1;
#else
  return 0;
#endif
}

EXPORT int linnet_forward(const linnet_call *c) {
  const int status = check(c);
  if (status) return status;
  return table()->forward(c);
}

EXPORT int linnet_backward(const linnet_call *c) {
  const int status = check(c);
  if (status) return status;
  return table()->backward(c);
}

EXPORT int linnet_step(const linnet_call *c) {
  const int status = check(c);
  if (status) return status;
  if (c->Tq != 1 || c->Tk != 1 || c->cu || c->mask || !c->s_out || !c->z_out) return LINNET_BAD_ARGUMENT;
  return table()->step(c);
}

static int check_rows(int64_t function, const linnet_rows *c) {
  if (function < 0 || function >= LINNET_ROW_FUNCTIONS) return LINNET_BAD_ARGUMENT;
  if (c->rows < 0 || c->cols < 1 || c->threads < 1 || c->kind < 0 || c->kind > 2) return LINNET_BAD_ARGUMENT;
  if (function == LINNET_ROTATE && c->weight && (c->width < 2 || c->width % 2 || c->cols % c->width || c->period < 1))
    return LINNET_BAD_ARGUMENT;
  if (function == LINNET_TAPS || function == LINNET_TAPS_BACKWARD)
    if (c->width < 1 || c->period < 1 || c->rows % c->period) return LINNET_BAD_ARGUMENT;
  if (function == LINNET_CROSS_ENTROPY)
    for (int64_t r = 0; r < c->rows; ++r)
      if (c->index[r] >= c->cols) return LINNET_BAD_ARGUMENT;
  return LINNET_OK;
}

EXPORT int linnet_run_rows(const linnet_rows *c, int64_t function) {
  const int status = check_rows(function, c);
  if (status || c->rows == 0) return status;
  return table()->rows[function](c);
}

// Sizes of the structs of model.h, for whoever packs them.
EXPORT int64_t linnet_model_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(linnet_matrix), sizeof(linnet_map), sizeof(linnet_layer), sizeof(linnet_model),
                           sizeof(linnet_decode)};
  return which >= 0 && which < 5 ? sizes[which] : -1;
}

EXPORT int linnet_matmul(const linnet_matrix *m, const float *x, float *y, int64_t B, int64_t threads) {
  if (m->out < 1 || m->in < 1 || m->kind < 0 || m->kind > LINNET_INT8 || B < 1 || threads < 1)
    return LINNET_BAD_ARGUMENT;
  return table()->matmul(m, x, y, B, threads);
}

// Reads every byte once: the time is the limit of whatever has to read as much.
EXPORT int linnet_read(const float *p, int64_t bytes, int64_t threads, float *sink) {
  if (bytes < 0 || threads < 1) return LINNET_BAD_ARGUMENT;
  return table()->read(p, bytes, threads, sink);
}

EXPORT int64_t linnet_decode_scratch(const linnet_model *m, int64_t B, int64_t threads, int64_t longest) {
  if (B < 1 || threads < 1 || longest < 0) return -1;
  return table()->decode_scratch(m, B, threads, longest);
}

// Every row's slot, position, token and cache are inside the memory they index: known before anything is written.
static int check_decode(const linnet_decode *c, const linnet_model *m) {
  if (m->limit > LINNET_LONGEST) return LINNET_BAD_ARGUMENT;
  for (int64_t r = 0; r < c->B; ++r) {
    const int64_t slot = c->slots[r];
    if (slot < 0 || slot >= c->count) return LINNET_BAD_ARGUMENT;
    const int64_t t = c->positions[slot];
    if (t < 0 || t >= m->limit) return LINNET_BAD_POSITION;
    if (m->embed && (c->tokens[r] < 0 || c->tokens[r] >= m->tokens)) return LINNET_BAD_ARGUMENT;
    if (m->caches && (!c->cache[slot] || t >= c->capacity[slot] || c->capacity[slot] % 16 || t >= c->longest))
      return LINNET_BAD_ARGUMENT;
  }
  return LINNET_OK;
}

EXPORT int linnet_decode_step(const linnet_decode *c, const linnet_model *m) {
  if (c->B < 1 || c->threads < 1 || (uintptr_t)c->scratch % 64) return LINNET_BAD_ARGUMENT;
  if (m->embed ? !c->tokens : !c->values) return LINNET_BAD_ARGUMENT;
  if (m->caches && (!c->cache || !c->capacity)) return LINNET_BAD_ARGUMENT;
  const int status = check_decode(c, m);
  return status ? status : table()->decode(c, m);
}

// Sequences side by side in the blocks of linnet_icl.data, of 4-byte or 8-byte numbers.
EXPORT int64_t linnet_icl_lanes(int64_t wide) { return table()->lanes / (wide ? 2 : 1); }

EXPORT int64_t linnet_icl_size(void) { return (int64_t)sizeof(linnet_icl); }

EXPORT int linnet_run_icl(const linnet_icl *c) {
  if (c->L < 1 || c->K < 1 || c->E < 2 || c->n < 1 || c->samples < 1 || c->threads < 1) return LINNET_BAD_ARGUMENT;
  if (c->target < 0 || c->target > LINNET_POSTERIOR) return LINNET_BAD_ARGUMENT;
  if (c->target == LINNET_POSTERIOR && (c->points < 1 || !c->grid || !c->log_weight)) return LINNET_BAD_ARGUMENT;
  if (c->mode < 0 || c->mode > LINNET_TRAIN || !c->p || !c->q) return LINNET_BAD_ARGUMENT;
  if (c->mode == LINNET_ANSWERS || c->mode == LINNET_JACOBIAN) {
    if (!c->data || !c->out) return LINNET_BAD_ARGUMENT;
  } else if (!c->dp || !c->dq || !c->loss) {
    return LINNET_BAD_ARGUMENT;
  }
  if (c->mode == LINNET_TRAIN && (c->data || !c->m || !c->v || !c->rate || !c->curve || c->steps < 1 || c->done < 0))
    return LINNET_BAD_ARGUMENT;
  if (c->data ? c->target != LINNET_WEIGHTS : c->wide || !c->sigma) return LINNET_BAD_ARGUMENT;
  return table()->icl(c);
}

// values [B] from params [B, width] and uniforms [B, 2]; a mixture has width / 3 logistics, else width = levels.
EXPORT int linnet_choose(const float *params, const double *uniforms, int64_t *values, int64_t B, int64_t width,
                         int64_t levels, int64_t mixture) {
  if (B < 0 || levels < 2 || width < 1 || (mixture ? width % 3 : width != levels)) return LINNET_BAD_ARGUMENT;
  for (int64_t b = 0; b < B; ++b) {
    const float *p = params + b * width;
    values[b] = mixture ? choose_logistic(p, width / 3, uniforms + 2 * b, levels) : choose(p, width, uniforms[2 * b]);
  }
  return LINNET_OK;
}
