// The C ABI of the native kernels: one struct in, one status out. No torch, no Python, no C++ in the interface.
//
// Letters as everywhere: B batch, T time, H heads, D query/key width, F features, V value width, S sequences.
// Strides count elements; the last axis of every tensor has stride 1. Pointers may be null where said.
// linnet/native/library.py packs this struct field by field: change both, and LINNET_ABI, together.
#pragma once
#include <stdint.h>

#include "model.h"

#define LINNET_ABI 3

typedef struct {
  // forward: outputs, then inputs
  float *out, *inv;        // [B,T,H,V]; inv [B,T,H] = d out / d numerator (null: not kept)
  float *s_out, *z_out;    // [S,H,F,V], [S,H,F] contiguous (null: not wanted)
  const float *q, *k, *v;  // [B,Tq,H,D], [B,Tk,H,D], [B,Tk,H,V]
  const uint8_t *mask;     // [B,Tk], 1 = real token (null: all real)
  const int64_t *cu;       // [S+1] starts of packed sequences (null: sequence = batch row)
  const float *s0, *z0;    // initial state, like s_out (null: zero)
  // backward: gradients in, gradients out
  const float *g, *gs, *gz;  // of out, s_out, z_out (gs, gz null: zero)
  float *dq, *dk, *dv;
  float *ds0, *dz0;  // null: not wanted
  int64_t S, B, Tq, Tk, H, D, V, F;
  int64_t q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h;  // strides of the inputs
  int64_t o_b, o_t, o_h, g_b, g_t, g_h;                 // of out and of its gradient
  int64_t mask_b;
  int64_t kind;  // 0 identity, 1 elu+1, 2 relu, 3 relu^2, 4 exp, 5 quadratic c0 + c1 s + c2 s^2
  int64_t causal, normalize, threads;
  int64_t wide;  // step only: s0, z0, s_out, z_out are double
  double scale, eps, c0, c1, c2;
} linnet_call;  // dq, dk, dv are contiguous [B,T,H,.]

// Work on rows of numbers, for the functions of nn.h: norm, activation, rotation, cross entropy. Contiguous unless a
// stride is given; what a function does not name may be null or 0.
typedef struct {
  float *out, *out2;   // [rows, .]; norm: out2 [rows, 2] = mean and 1 / deviation
  float *sum, *sum2;   // sums over the rows are added to these: gradients of weight and bias (null: no)
  const float *x, *y;  // [rows, .]; y is a gradient
  const float *weight, *bias;  // [cols]; rotation: cos and sin [period, width / 2] (null: copy)
  const float *stat;           // what norm left in out2
  const int64_t *index;        // [rows], cross entropy: the target, negative = not counted
  int64_t rows, cols;          // activation: cols of its result
  int64_t width, period, first;  // rotation: width of a head; row r turns by entry (first + r) % period
  int64_t x_stride, out_stride;
  int64_t kind;  // norm: 1 = RMS; activation: 0 relu, 1 gelu, 2 swiglu; rotation: 1 = back; cross entropy: 1 = gradient
  int64_t threads;
  double eps;
} linnet_rows;

enum { LINNET_OK = 0, LINNET_BAD_ARGUMENT = 1, LINNET_NO_MEMORY = 2, LINNET_BAD_CU = 3 };

// The functions on rows, in the order of linnet_table.rows.
enum {
  LINNET_NORM,
  LINNET_NORM_BACKWARD,
  LINNET_ACTIVATION,
  LINNET_ACTIVATION_BACKWARD,
  LINNET_ROTATE,
  LINNET_CROSS_ENTROPY,
  LINNET_COLUMN_SUMS,
  LINNET_ROW_FUNCTIONS
};

// One table per instruction set; api.cpp picks the widest one this processor has.
typedef struct {
  const char *isa;
  int (*forward)(const linnet_call *);
  int (*backward)(const linnet_call *);
  int (*step)(const linnet_call *);
  int (*rows[LINNET_ROW_FUNCTIONS])(const linnet_rows *);
  int (*matmul)(const linnet_matrix *, const float *x, float *y, int64_t B, int64_t threads);
  int (*read)(const float *p, int64_t bytes, int64_t threads, float *sink);
  int64_t (*decode_scratch)(const linnet_model *, int64_t B, int64_t threads, int64_t longest);
  int (*decode)(const linnet_decode *, const linnet_model *);
} linnet_table;
