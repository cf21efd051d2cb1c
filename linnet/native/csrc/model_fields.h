// What the decoder takes (decode.h): a model as plain structs, and one step of some rows of a running batch.
//
// linnet/generate/decoder fills these structs. E model width, H query heads, G = H / kv_heads, D key width, V value
// width, F features of a head, K kernel size of a convolution, N its channels.
#pragma once
#include "fields.h"
#include "matrix_fields.h"
#include "recurrent_fields.h"

// A product on its own, for tests and benchmarks.
#define LINNET_FIELDS_matmul(FIELD)                                                                               \
  FIELD(float *, y)       /* [rows,matrix.out] */                                                                 \
  FIELD(const float *, x) /* [rows,matrix.in] */                                                                  \
  FIELD(linnet_matrix, matrix)                                                                                    \
  FIELD(int64_t, rows) FIELD(int64_t, threads)

// How a head of q or k becomes features: `prepare`, then `core`. See feature.h.
enum { LINNET_PLAIN, LINNET_NORM_AFFINE, LINNET_PROJECT, LINNET_FAVOR, LINNET_FOURIER, LINNET_SOFTMAX_FEATURES,
       LINNET_DPFP, LINNET_TAYLOR_FULL };
enum { LINNET_MONOMIALS = 6 };  // of the cores; 0 to 5 are the kinds of attention_fields.h

#define LINNET_FIELDS_map(FIELD)                                                                                  \
  FIELD(int64_t, prepare) FIELD(int64_t, core)                                                                    \
  FIELD(int64_t, D) FIELD(int64_t, R) FIELD(int64_t, F) /* width of a head, after `prepare`, after `core` */      \
  FIELD(int64_t, per_head)   /* parameters are one set for each key-value head; 0: one for all */                 \
  FIELD(int64_t, norm)       /* 0 none, 1 over each head, 2 over all key-value heads of a token */                \
  FIELD(int64_t, square)     /* the result of the affine is squared, coordinate by coordinate */                  \
  FIELD(int64_t, activation) /* of a projection to rows: 0 none, 1 [y, -y], 2 softmax of that, 3 of y and of -y */ \
  FIELD(int64_t, rows)       /* of a projection */                                                                \
  FIELD(int64_t, order)      /* DPFP: shifts; full Taylor: its order; monomials: their highest degree */          \
  FIELD(const float *, weight)  /* gamma [.,D]; projection [.,D,rows]; Taylor [order+1]; monomials [F] */         \
  FIELD(const float *, bias)    /* beta [.,D]; projection [.,rows]; or null */                                    \
  FIELD(const int64_t *, index) /* monomials [F,order], -1 after the last factor */                               \
  FIELD(double, scale) FIELD(double, eps)                                                                         \
  FIELD(double, w0) FIELD(double, w1) FIELD(double, w_diag) FIELD(double, w_off)                                  \
  /* quadratic core: weights of 1, x_i, x_i^2, x_i x_j; a negative one: no such features */

enum { LINNET_LINEAR, LINNET_SOFTMAX, LINNET_WINDOW, LINNET_CONV, LINNET_GATED_CONV,
       LINNET_GATED, LINNET_SCAN, LINNET_WKV4, LINNET_WKV7, LINNET_CHANNEL_MIX };
enum { LINNET_NO_MLP = -1, LINNET_IDENTITY_MLP = -2 };  // else one of enum Activation of nn.h

#define LINNET_FIELDS_layer(FIELD)                                                                                \
  FIELD(int64_t, mixer) FIELD(int64_t, heads) FIELD(int64_t, kv_heads)                                            \
  FIELD(int64_t, key) FIELD(int64_t, value) FIELD(int64_t, features)                                              \
  FIELD(int64_t, window) FIELD(int64_t, kernel_size) FIELD(int64_t, channels)                                     \
  FIELD(int64_t, exact) /* linear, fixed decay: the rounding errors of its sums are kept with them */             \
  FIELD(int64_t, state) /* where this layer begins in a row of the states, in floats */                           \
  FIELD(int64_t, past)  /* where in that the last inputs of the convolution or of the token shift begin */        \
  FIELD(int64_t, cache) /* softmax: its number among the layers with a cache */                                   \
  FIELD(int64_t, mlp) FIELD(int64_t, hidden)                                                                      \
  FIELD(const float *, norm1) FIELD(const float *, bias1) FIELD(const float *, norm2) FIELD(const float *, bias2) \
  FIELD(int64_t, turns)     /* q and k are turned to their positions */                                           \
  FIELD(int64_t, gate_heads) /* attention: the output times sigmoid of the last [heads,value] of the projection */ \
  FIELD(const float *, q_norm) FIELD(const float *, k_norm) /* attention: [key] of an RMS norm per head; or null */ \
  FIELD(double, qk_eps)     /* of these */                                                                        \
  FIELD(double, norm_eps)   /* of norm1 and norm2 */                                                              \
  FIELD(const float *, filter)      /* [K,N], that of the newest input first */                                   \
  FIELD(const float *, filter_bias) /* [N] */                                                                     \
  FIELD(double, eps)                /* of linear attention */                                                     \
  FIELD(double, scale)              /* of softmax */                                                              \
  FIELD(linnet_map, q_map) FIELD(linnet_map, k_map)                                                               \
  FIELD(linnet_gated, gated) FIELD(linnet_rwkv, rwkv) FIELD(linnet_scan, scan)                                    \
  FIELD(linnet_matrix, in)  /* q, k, v, or gate, or u1, u2, ...: the channels of a convolution come first */      \
  FIELD(linnet_matrix, out)                                                                                       \
  FIELD(linnet_matrix, up)  /* of swiglu: 32 gates and 32 values in turn */                                       \
  FIELD(linnet_matrix, down)

#define LINNET_LONGEST ((int64_t)1 << 40)  // LONGEST of linnet/ops/checks.py: five digits of a position in base 256

enum { LINNET_NO_POSITIONS, LINNET_LEARNED, LINNET_SINUSOIDAL, LINNET_ROTARY };

#define LINNET_FIELDS_model(FIELD)                                                                                \
  FIELD(const linnet_layer *, layers)                                                                             \
  FIELD(const float *, last) FIELD(const float *, last_bias) /* the last norm; null: none */                      \
  FIELD(const float *, embed)  /* [tokens,E], or null: numbers come in through `input` */                         \
  FIELD(const float *, table)  /* learned positions [.,E] */                                                      \
  FIELD(const double *, waves) /* [5,256,half,2]: cos and sin of v 256^d w_i, for digit d = v of a position */    \
  FIELD(int64_t, n_layers) FIELD(int64_t, width) FIELD(int64_t, pre) FIELD(int64_t, rms)                          \
  FIELD(int64_t, positions) FIELD(int64_t, half)                                                                  \
  FIELD(int64_t, caches) /* layers with a cache */                                                                \
  FIELD(int64_t, tokens) /* rows of `embed` */                                                                    \
  FIELD(int64_t, limit)  /* inputs after which a row cannot step: rows of `table`, or LINNET_LONGEST */           \
  FIELD(double, norm_eps) FIELD(double, gain)                                                                     \
  FIELD(linnet_matrix, input) FIELD(linnet_matrix, head)

// Kept by the caller and changed from step to step.
#define LINNET_FIELDS_decode(FIELD)                                                                               \
  FIELD(float *, out)              /* [B, head.out] */                                                            \
  FIELD(void *, scratch)           /* linnet_decode_scratch bytes, 64-byte aligned */                             \
  FIELD(float *, states)           /* [count, stride] */                                                          \
  FIELD(int64_t *, positions)      /* [count]: tokens seen; one more afterwards */                                \
  FIELD(float *const *, cache)     /* [count]: see mix.h; may be null without softmax layers */                   \
  FIELD(const int64_t *, capacity) /* [count]: tokens a cache has room for, a multiple of 16 */                   \
  FIELD(const int64_t *, slots)    /* [B], each once */                                                           \
  FIELD(const int64_t *, tokens)   /* [B], or */                                                                  \
  FIELD(const float *, values)     /* [B, input.in] */                                                            \
  FIELD(int64_t, stride) FIELD(int64_t, B) FIELD(int64_t, threads)                                                \
  FIELD(int64_t, longest)          /* softmax: tokens in the longest cache of these rows, this one included */    \
  FIELD(int64_t, count)            /* slots there are */
