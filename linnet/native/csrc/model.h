// What the decoder is told: a model as plain structs, and one step of some rows of a running batch.
//
// Every field is 8 bytes wide; linnet/generate/program.py packs these structs field by field. E model width, H query
// heads, G = H / kv_heads, D key width, V value width, F features of a head, K taps of a convolution, N its channels.
#pragma once
#include <stdint.h>

enum { LINNET_FLOAT32 = 0, LINNET_BFLOAT16 = 1, LINNET_INT8 = 2 };

typedef struct {          // y = W x + bias, packed in panels of 32 outputs: see matmul.h
  const void *w;
  const float *scale;     // int8: [out padded to 32], weight = scale * integer; else null
  const int32_t *sums;    // int8: [out padded to 32], sum of the integers of a row; else null
  const float *bias;      // [out padded to 32], or null
  int64_t out, in, kind;  // kind: one of the above; out = 0: there is no such matrix
} linnet_matrix;

// How a head of q or k becomes features: `prepare`, then `core`. See feature.h.
enum { LINNET_PLAIN, LINNET_NORM_AFFINE, LINNET_PROJECT, LINNET_FAVOR, LINNET_FOURIER, LINNET_SOFTMAX_FEATURES,
       LINNET_DPFP, LINNET_TAYLOR_FULL };
enum { LINNET_MONOMIALS = 6 };  // of the cores; 0 to 5 are the kinds of linnet_call

typedef struct {
  int64_t prepare, core;
  int64_t D, R, F;       // width of a head, after `prepare`, after `core`
  int64_t per_head;      // parameters are one set for each key-value head; 0: one for all
  int64_t norm;          // 0 none, 1 over each head, 2 over all key-value heads of a token
  int64_t square;        // the affine's answer is squared, coordinate by coordinate
  int64_t activation;    // of a projection to rows: 0 none, 1 [y, -y], 2 softmax of that, 3 softmax of y and of -y
  int64_t rows;          // of a projection
  int64_t order;         // DPFP: shifts; full Taylor: its order; monomials: their highest degree
  const float *weight;   // gamma [.,D]; projection [.,D,rows]; Taylor [order+1]; monomials [F]
  const float *bias;     // beta [.,D]; projection [.,rows]; or null
  const int64_t *index;  // monomials [F,order], -1 after the last factor
  double scale, eps;
  double w0, w1, w_diag, w_off;  // quadratic core: weights of 1, x_i, x_i^2, x_i x_j; a negative one: no such features
} linnet_map;

enum { LINNET_LINEAR, LINNET_SOFTMAX, LINNET_WINDOW, LINNET_CONV, LINNET_GATED_CONV };
enum { LINNET_NO_MLP = -1, LINNET_IDENTITY_MLP = -2 };  // else the kinds of linnet_rows: relu, gelu, swiglu

typedef struct {
  int64_t mixer, heads, kv_heads, key, value, features;
  int64_t window, taps, channels;
  int64_t exact;  // linear: the rounding errors of its sums are gathered beside them
  int64_t state;  // where this layer begins in a row of the states, in floats
  int64_t cache;  // softmax: which of the layers with a cache this is
  int64_t mlp, hidden;
  const float *norm1, *bias1, *norm2, *bias2;
  const float *filter, *filter_bias;  // [K,N], the newest tap first; [N]
  double eps, scale;                  // linear attention's eps; softmax's scale
  linnet_map q_map, k_map;
  linnet_matrix in, out, up, down;  // in: q, k, v, or gate, or u1, u2; up of swiglu: 32 gates and 32 values in turn
} linnet_layer;

#define LINNET_LONGEST ((int64_t)1 << 40)  // LONGEST of linnet/ops/checks.py: five digits of a position in base 256

enum { LINNET_NO_POSITIONS, LINNET_LEARNED, LINNET_SINUSOIDAL, LINNET_ROTARY };

typedef struct {
  const linnet_layer *layers;
  const float *last, *last_bias;  // the last norm; null: none
  const float *embed;             // [tokens,E], or null: numbers come in through `input`
  const float *table;             // learned positions [.,E]
  const double *waves;            // [5,256,half,2]: cos and sin of v 256^d w_i, for digit d = v of a position
  int64_t n_layers, width, pre, rms, positions, half;
  int64_t caches;  // layers with a cache
  int64_t tokens;  // rows of `embed`
  int64_t limit;   // a row that has seen so many inputs cannot step: rows of `table`, LINNET_LONGEST without one
  double norm_eps, gain;
  linnet_matrix input, head;
} linnet_model;

typedef struct {
  float *out;                // [B, head.out]
  void *scratch;             // linnet_decode_scratch bytes, 64-byte aligned
  float *states;             // [slots, stride]
  int64_t *positions;        // [slots]: tokens seen; one more afterwards
  float *const *cache;       // [slots]: see mix.h; may be null without softmax layers
  const int64_t *capacity;   // [slots]: tokens a cache has room for, a multiple of 16
  const int64_t *slots;      // [B], each once
  const int64_t *tokens;     // [B], or
  const float *values;       // [B, input.in]
  int64_t stride, B, threads;
  int64_t longest;           // softmax: tokens in the longest cache of these rows, this one included
  int64_t count;             // slots there are
} linnet_decode;
