// What the kernels of linear attention take: forward, backward and one step.
//
// B batch, T time, H heads, D query/key width, F features, V value width, S sequences (S = B unless packed by `cu`).
#pragma once
#include "fields.h"

// How far the next batch row, token, head and element are, in elements; `d` is 1.
#define LINNET_FIELDS_strides(FIELD) FIELD(int64_t, b) FIELD(int64_t, t) FIELD(int64_t, h) FIELD(int64_t, d)

// kind: 0 identity, 1 elu+1, 2 relu, 3 relu^2, 4 exp, 5 quadratic c0 + c1 s + c2 s^2
#define LINNET_KERNEL_FIELDS(FIELD)                                                                               \
  FIELD(int64_t, kind) FIELD(int64_t, normalize) FIELD(int64_t, threads)                                          \
  FIELD(double, scale) FIELD(double, eps) FIELD(double, c0) FIELD(double, c1) FIELD(double, c2)

#define LINNET_SEQUENCE_POINTERS(FIELD)                                                                           \
  FIELD(const float *, q)      /* [B,Tq,H,D] by q_strides */                                                      \
  FIELD(const float *, k)      /* [B,Tk,H,D] by k_strides */                                                      \
  FIELD(const float *, v)      /* [B,Tk,H,V] by v_strides */                                                      \
  FIELD(const uint8_t *, mask) /* [B,Tk], 1 = real token (null: all real) */                                      \
  FIELD(const int64_t *, cu)   /* [S+1] starts of packed sequences (null: sequence = batch row) */                \
  FIELD(const float *, s0)     /* [S,H,F,V] initial state (null: zero) */                                         \
  FIELD(const float *, z0)     /* [S,H,F] (null: zero) */

#define LINNET_SEQUENCE_SIZES(FIELD)                                                                              \
  FIELD(int64_t, S) FIELD(int64_t, B) FIELD(int64_t, Tq) FIELD(int64_t, Tk)                                       \
  FIELD(int64_t, H) FIELD(int64_t, D) FIELD(int64_t, V) FIELD(int64_t, F)                                         \
  FIELD(linnet_strides, q_strides) FIELD(linnet_strides, k_strides) FIELD(linnet_strides, v_strides)              \
  FIELD(int64_t, causal)

#define LINNET_FIELDS_forward(FIELD)                                                                              \
  FIELD(float *, out)   /* [B,Tq,H,V] */                                                                          \
  FIELD(float *, inv)   /* [B,Tq,H] = d out / d numerator (null: not kept) */                                     \
  FIELD(float *, s_out) /* [S,H,F,V] final state (null: not wanted) */                                            \
  FIELD(float *, z_out) /* [S,H,F] (null: not wanted) */                                                          \
  LINNET_SEQUENCE_POINTERS(FIELD)                                                                                 \
  LINNET_SEQUENCE_SIZES(FIELD)                                                                                    \
  LINNET_KERNEL_FIELDS(FIELD)

#define LINNET_FIELDS_backward(FIELD)                                                                             \
  FIELD(float *, dq) FIELD(float *, dk) FIELD(float *, dv) /* like q, k, v, but contiguous */                     \
  FIELD(float *, ds0)      /* [S,H,F,V] (null: not wanted) */                                                     \
  FIELD(float *, dz0)      /* [S,H,F] (null: not wanted) */                                                       \
  FIELD(const float *, g)  /* [B,Tq,H,V] gradient of out, by g_strides */                                         \
  FIELD(const float *, gs) /* [S,H,F,V] of s_out (null: zero) */                                                  \
  FIELD(const float *, gz) /* [S,H,F] of z_out (null: zero) */                                                    \
  FIELD(const float *, out) FIELD(const float *, inv) /* of the forward; out by o_strides */                      \
  LINNET_SEQUENCE_POINTERS(FIELD)                                                                                 \
  FIELD(linnet_strides, g_strides) FIELD(linnet_strides, o_strides)                                               \
  LINNET_SEQUENCE_SIZES(FIELD)                                                                                    \
  LINNET_KERNEL_FIELDS(FIELD)

#define LINNET_FIELDS_step(FIELD)                                                                                 \
  FIELD(float *, out)       /* [B,H,V] */                                                                         \
  FIELD(void *, s_out)      /* [B,H,F,V]; all four states are float, or double where `wide` */                    \
  FIELD(void *, z_out)      /* [B,H,F] */                                                                         \
  FIELD(const float *, q)   /* [B,1,H,D] by q_strides */                                                          \
  FIELD(const float *, k)   /* [B,1,H,D] by k_strides */                                                          \
  FIELD(const float *, v)   /* [B,1,H,V] by v_strides */                                                          \
  FIELD(const void *, s0)   /* (null: zero) */                                                                    \
  FIELD(const void *, z0)   /* (null: zero) */                                                                    \
  FIELD(int64_t, B) FIELD(int64_t, H) FIELD(int64_t, D) FIELD(int64_t, V) FIELD(int64_t, F)                       \
  FIELD(linnet_strides, q_strides) FIELD(linnet_strides, k_strides) FIELD(linnet_strides, v_strides)              \
  FIELD(int64_t, wide)                                                                                            \
  LINNET_KERNEL_FIELDS(FIELD)
