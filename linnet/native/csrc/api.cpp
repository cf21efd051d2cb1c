// The exported functions: check the call, pick the widest instruction set, run.
//
// Nothing here trusts its caller with memory: sizes must be non-negative, packed starts must rise from 0 to T. A new
// function needs an overload of `check` here; the rest follows from its name in LINNET_CALLS (linnet.h).
#include "layout.h"
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

// ---- what a call must be, by its struct -----------------------------------------------------------------------------

static int64_t features_of(int64_t kind, int64_t D, double c0, double c1, double c2) {
  return kind == 5 ? (c0 > 0) + (c1 > 0) * D + (c2 > 0) * (D * (D + 1) / 2) : D;
}

template <class C>
static int check_kernel(const C *c) {
  if (c->B < 0 || c->H < 0 || c->D < 1 || c->V < 1 || c->F < 1 || c->threads < 1) return LINNET_BAD_ARGUMENT;
  if (c->kind < 0 || c->kind > 5 || c->F != features_of(c->kind, c->D, c->c0, c->c1, c->c2)) return LINNET_BAD_ARGUMENT;
  return LINNET_OK;
}

// S sequences packed in one row by their starts; without starts, one in each of B rows.
template <class C>
static int check_packed(const C *c, int64_t length) {
  if (!c->cu) return c->S == c->B ? LINNET_OK : LINNET_BAD_ARGUMENT;
  if (c->B != 1 || c->cu[0] != 0 || c->cu[c->S] != length) return LINNET_BAD_CU;
  for (int64_t i = 0; i < c->S; ++i)
    if (c->cu[i] > c->cu[i + 1]) return LINNET_BAD_CU;
  return LINNET_OK;
}

template <class C>
static int check_sequences(const C *c) {
  if (c->S < 0 || c->Tq < 0 || c->Tk < 0 || check_kernel(c)) return LINNET_BAD_ARGUMENT;
  if (c->causal && c->Tq != c->Tk) return LINNET_BAD_ARGUMENT;
  if (c->cu && c->Tq != c->Tk) return LINNET_BAD_CU;
  return check_packed(c, c->Tq);
}

static int check(const linnet_forward_call *c) { return check_sequences(c); }
static int check(const linnet_backward_call *c) { return check_sequences(c); }

static int check(const linnet_step_call *c) {
  return check_kernel(c) || !c->s_out || !c->z_out ? LINNET_BAD_ARGUMENT : LINNET_OK;
}

template <class C>
static int check_gated(const C *c) {
  if (c->S < 0 || c->B < 0 || c->T < 0 || c->H < 0 || c->D < 1 || c->V < 1 || c->threads < 1) return LINNET_BAD_ARGUMENT;
  if (c->rule < 0 || c->rule > 2 || (c->G != 0 && c->G != 1 && c->G != c->D)) return LINNET_BAD_ARGUMENT;
  const int64_t panels = (c->V + 15) / 16, blocks = (c->D + 15) / 16;
  if ((c->G != 0) != (c->decay != nullptr) || (c->rule == 1) != (c->beta != nullptr)) return LINNET_BAD_ARGUMENT;
  if ((c->rule == 2) != (c->erase && c->rate) || (c->rule == 2 && c->G != c->D)) return LINNET_BAD_ARGUMENT;
  if (c->kept && (c->floats != panels * blocks * 256 || c->slots < c->B * c->T / 128 + c->S)) return LINNET_BAD_ARGUMENT;
  return check_packed(c, c->T);
}

static int check(const linnet_gated_forward_call *c) { return c->faults ? check_gated(c) : LINNET_BAD_ARGUMENT; }
static int check(const linnet_gated_backward_call *c) { return c->kept ? check_gated(c) : LINNET_BAD_ARGUMENT; }

template <class C>
static int check_rows(const C *c, bool ok = true) {
  return c->rows < 0 || c->cols < 1 || c->threads < 1 || !ok ? LINNET_BAD_ARGUMENT : LINNET_OK;
}

template <class C>
static int check_activation(const C *c) {
  return check_rows(c, c->kind >= 0 && c->kind <= 2 && c->width == (c->kind == 2 ? 2 : 1) * c->cols);
}

template <class C>
static int check_gate(const C *c) {
  return check_rows(c, c->z_stride >= c->cols && !c->u == !c->skip && (!c->u || c->u_stride >= c->cols));
}

template <class C>
static int check_conv(const C *c) {
  return check_rows(c, c->kernel_size >= 1 && c->length >= 1 && c->rows % c->length == 0);
}

static int check(const linnet_norm_call *c) { return check_rows(c); }
static int check(const linnet_norm_backward_call *c) { return check_rows(c); }
static int check(const linnet_activation_call *c) { return check_activation(c); }
static int check(const linnet_activation_backward_call *c) { return check_activation(c); }
static int check(const linnet_gate_call *c) { return check_gate(c); }
static int check(const linnet_gate_backward_call *c) { return !c->du == !c->u ? check_gate(c) : LINNET_BAD_ARGUMENT; }
static int check(const linnet_mixtures_call *c) { return check_rows(c, c->count >= 1 && c->count <= 8); }
static int check(const linnet_mixtures_backward_call *c) { return check_rows(c, c->count >= 1 && c->count <= 8); }
static int check(const linnet_column_sums_call *c) { return check_rows(c); }
static int check(const linnet_causal_conv_call *c) { return check_conv(c); }
static int check(const linnet_causal_conv_backward_call *c) { return check_conv(c); }

static int check(const linnet_rotate_call *c) {
  return check_rows(c, !c->cos || (c->half >= 1 && c->cols % (2 * c->half) == 0 && c->period >= 1));
}

static int check(const linnet_cross_entropy_call *c) {
  if (check_rows(c)) return LINNET_BAD_ARGUMENT;
  for (int64_t r = 0; r < c->rows; ++r)
    if (c->targets[r] >= c->cols) return LINNET_BAD_ARGUMENT;
  return LINNET_OK;
}

static int check(const linnet_matmul_call *c) {
  const linnet_matrix *m = &c->matrix;
  const bool ok = m->out >= 1 && m->in >= 1 && m->kind >= 0 && m->kind <= LINNET_INT8;
  return ok && c->rows >= 1 && c->threads >= 1 ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

// Sequences side by side in a block of stored ones, of 4-byte or 8-byte numbers.
EXPORT int64_t linnet_icl_lanes(int64_t wide) { return table()->lanes / (wide ? 2 : 1); }

template <class C>
static bool icl_sizes(const C *c) {
  const bool full = c->p_rows == c->E && c->p_cols == c->E, diagonal = c->p_rows == 2 && c->p_cols == 1;
  const bool sizes = c->L >= 1 && c->K >= 1 && c->E >= 2 && c->samples >= 1 && c->threads >= 1;
  return sizes && (full || diagonal) && c->p && c->q;
}

template <class C>
static bool icl_stored(const C *c) {
  return c->lanes == linnet_icl_lanes(c->wide) && c->blocks * c->lanes >= c->samples &&
         c->packed == c->E * (c->E + 1) / 2 + c->E - 1;
}

template <class C>
static bool icl_fresh(const C *c) {
  if (c->n < 1 || c->choices < 1 || !c->sigma || c->target < 0 || c->target > LINNET_POSTERIOR) return false;
  return c->target != LINNET_POSTERIOR || (c->points >= 1 && c->grid && c->log_weight);
}

static int check(const linnet_icl_gradient_call *c) {
  const bool ok = c->data ? icl_stored(c) && c->target == LINNET_WEIGHTS : icl_fresh(c) && !c->wide;
  return ok && icl_sizes(c) && c->dp && c->dq && c->loss ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

static int check(const linnet_icl_answers_call *c) {
  const bool ok = icl_sizes(c) && icl_stored(c) && c->data && c->out && c->outputs == c->E - 1;
  return ok ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

static int check(const linnet_icl_jacobian_call *c) {
  const int64_t entries = c->p_cols == 1 ? 4 * c->L : 2 * c->L * c->K * c->E * c->E;
  const bool ok = icl_sizes(c) && icl_stored(c) && c->data && c->out && c->outputs == (c->E - 1) * (1 + entries);
  return ok ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

static int check(const linnet_icl_train_call *c) {
  const bool ok = icl_sizes(c) && icl_fresh(c) && c->dp && c->dq && c->loss && c->m && c->v && c->rate && c->curve;
  return ok && c->steps >= 1 && c->done >= 0 ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

template <class C>
static int check_scan(const C *c, int64_t numbers, bool ok) {
  if (c->S < 0 || c->B < 0 || c->T < 0 || c->E < 1 || numbers < 1 || c->threads < 1 || !ok) return LINNET_BAD_ARGUMENT;
  if (c->chunk < 1 || c->chunk > LINNET_SCAN_CHUNK) return LINNET_BAD_ARGUMENT;
  const int64_t width = (c->E + 15) / 16 * 16 * ((numbers + 3) / 4 * 4);
  if (c->kept && (c->width < width || c->slots < c->B * c->T / c->chunk + c->S + 1)) return LINNET_BAD_ARGUMENT;
  return check_packed(c, c->T);
}

static int check(const linnet_selective_scan_call *c) { return check_scan(c, c->N, c->y); }
static int check(const linnet_selective_scan_backward_call *c) { return check_scan(c, c->N, c->kept); }
static int check(const linnet_wkv_call *c) { return check_scan(c, 4, c->out); }
static int check(const linnet_wkv_backward_call *c) { return check_scan(c, 4, c->kept && (!c->ds0 || c->s0)); }

static int check(const linnet_choose_call *c) {
  const bool ok = c->rows >= 0 && c->levels >= 2 && c->width >= 1;
  return ok && (c->mixture ? c->width % 3 == 0 : c->width == c->levels) ? LINNET_OK : LINNET_BAD_ARGUMENT;
}

// ---- what is loaded -------------------------------------------------------------------------------------------------

EXPORT int linnet_abi_version(void) { return LINNET_ABI; }

// Names, kinds and offsets of the fields of every struct: see layout.h.
EXPORT const char *linnet_layouts(void) { return layout::text.chars; }

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

// Run another instruction set from now on (for tests and benchmarks); 0 when this processor has it.
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

// ---- the calls ------------------------------------------------------------------------------------------------------

#define LINNET_EXPORT(name)                                   \
  EXPORT int linnet_##name(const linnet_##name##_call *c) {   \
    const int status = check(c);                              \
    return status ? status : table()->name(c);                \
  }
LINNET_CALLS(LINNET_EXPORT)

EXPORT int linnet_choose(const linnet_choose_call *c) {
  const int status = check(c);
  if (status) return status;
  for (int64_t r = 0; r < c->rows; ++r) {
    const float *p = c->params + r * c->width;
    const double *u = c->uniforms + 2 * r;
    c->values[r] = c->mixture ? choose_logistic(p, c->width / 3, u, c->levels) : choose(p, c->width, u[0]);
  }
  return LINNET_OK;
}

// Read every byte once: no kernel that reads as much can be faster.
EXPORT int linnet_read(const float *p, int64_t bytes, int64_t threads, float *sink) {
  if (bytes < 0 || threads < 1) return LINNET_BAD_ARGUMENT;
  return table()->read(p, bytes, threads, sink);
}

EXPORT int64_t linnet_decode_scratch(const linnet_model *m, int64_t B, int64_t threads, int64_t longest) {
  if (B < 1 || threads < 1 || longest < 0) return -1;
  return table()->decode_scratch(m, B, threads, longest);
}

// Check that each row's slot, position, token and cache lie inside the memory they index, before anything is written.
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
