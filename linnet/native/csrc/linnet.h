// The C ABI of the native kernels: one struct in, one status out. No torch, no Python, no C++ in the interface.
//
// Letters as everywhere: B batch, T time, H heads, D query/key width, F features, V value width, S sequences.
// Strides count elements; the last axis of every tensor has stride 1. Pointers may be null where said.
// linnet/native/library.py packs this struct field by field: change both, and LINNET_ABI, together.
#pragma once
#include <stdint.h>

#include "model.h"

#define LINNET_ABI 6

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

// Work on rows of numbers, for the functions of nn.h and taps.h: norm, activation, rotation, cross entropy, convolution.
// Contiguous unless a stride is given; what a function does not name may be null or 0.
typedef struct {
  float *out, *out2;   // [rows, .]; norm: out2 [rows, 2] = mean and 1 / deviation
  float *sum, *sum2;   // sums over the rows are added to these: gradients of weight and bias (null: no)
  const float *x, *y;  // [rows, .]; y is a gradient; convolution: y is the gate (null: none)
  const float *weight, *bias;  // [cols]; rotation: cos and sin [period, width / 2] (null: copy); convolution: [width, cols]
  const float *stat;           // what norm left in out2; convolution backward: the gate (null: none)
  const int64_t *index;        // [rows], cross entropy: the target, negative = not counted
  int64_t rows, cols;          // activation: cols of its result
  int64_t width, period, first;  // rotation: width of a head; row r turns by entry (first + r) % period; convolution: taps,
                                 // and rows of a sequence
  int64_t x_stride, out_stride;
  int64_t kind;  // norm: 1 = RMS; activation: 0 relu, 1 gelu, 2 swiglu; rotation: 1 = back; cross entropy: 1 = gradient
  int64_t threads;
  double eps;
} linnet_rows;

// Loss and gradient of an in-context regression transformer on a batch, for regress.h. d = E - 1 features.
typedef struct {
  double *dp, *dq;  // sums of gradients, like p and q
  double *loss;     // [2]: sum of the losses; how many sequences were left out because theirs was over the limit
  void *out;        // stored sequences: what `mode` says in place of gradients
  double *p, *q;    // FULL [L,K,E,E]; diagonal [L,K,2], the x part and the y part; written by training only
  const void *data;     // stored [blocks, E(E+1)/2 + d, lanes]: S on and right of its diagonal, target (null: fresh)
  const double *sigma;  // fresh: values to choose from, or the top of a uniform distribution
  const double *grid, *log_weight;  // [points] of sigma for LINNET_POSTERIOR
  // training: Adam's averages [p and q], its learning rate [steps], the mean loss of each step [steps]
  double *m, *v;
  const double *rate;
  double *curve;
  const uint8_t *frozen;  // [p and q], 1 = stays as it is (null: none)
  int64_t L, K, E, n, samples;
  int64_t sigmas, points;  // sigmas 0: uniform
  int64_t seed, first;     // the stream, and the index of the first sequence in it
  int64_t target, diagonal, wide, mode, threads;
  int64_t steps, done;     // training: how many now, how many before (for Adam's bias correction)
  int64_t wild;            // every how many blocks one is drawn wider than the problem says (0: none)
  double limit;            // losses over this are left out
  double temper;           // gradients of losses over this are scaled by temper / loss (0: not)
  double wild_x, wild_w, wild_weight;  // wider: inputs, weights; and how much such a block counts
  double beta1, beta2, eps, clip;      // Adam; clip: largest norm of a step's gradient (0: any)
} linnet_icl;

enum { LINNET_GRADIENT = 0, LINNET_ANSWERS = 1, LINNET_JACOBIAN = 2, LINNET_TRAIN = 3 };
enum { LINNET_QUERY = 0, LINNET_WEIGHTS = 1, LINNET_RIDGE = 2, LINNET_POSTERIOR = 3 };

enum { LINNET_OK = 0, LINNET_BAD_ARGUMENT = 1, LINNET_NO_MEMORY = 2, LINNET_BAD_CU = 3, LINNET_BAD_POSITION = 4 };

// The functions on rows, in the order of linnet_table.rows.
enum {
  LINNET_NORM,
  LINNET_NORM_BACKWARD,
  LINNET_ACTIVATION,
  LINNET_ACTIVATION_BACKWARD,
  LINNET_ROTATE,
  LINNET_CROSS_ENTROPY,
  LINNET_COLUMN_SUMS,
  LINNET_TAPS,
  LINNET_TAPS_BACKWARD,
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
  int (*icl)(const linnet_icl *);
  int64_t lanes;  // numbers of 4 bytes in a vector
} linnet_table;
