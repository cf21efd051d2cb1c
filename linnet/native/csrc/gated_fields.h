// What the kernels of the gated family take (gated.h has the equation): forward, and backward from kept states.
//
// B batch, T time, H heads, D key width, V value width, G 1 or D decays per head, S sequences (S = B unless packed).
#pragma once
#include "attention_fields.h"

// rule: 0 nothing is erased, 1 the delta rule (beta), 2 RWKV-7 (erase and rate). G: 0 without decay.
#define LINNET_GATED_POINTERS(FIELD)                                                                              \
  FIELD(const float *, q)      /* [B,T,H,D], each of these by its strides */                                      \
  FIELD(const float *, k)      /* [B,T,H,D] */                                                                    \
  FIELD(const float *, v)      /* [B,T,H,V] */                                                                    \
  FIELD(const float *, decay)  /* [B,T,H,G] logarithms (null: none) */                                            \
  FIELD(const float *, beta)   /* [B,T,H,1] (null unless rule 1) */                                               \
  FIELD(const float *, erase)  /* [B,T,H,D] (null unless rule 2) */                                               \
  FIELD(const float *, rate)   /* [B,T,H,D] (null unless rule 2) */                                               \
  FIELD(const uint8_t *, mask) /* [B,T], 1 = real token (null: all real) */                                       \
  FIELD(const int64_t *, cu)   /* [S+1] starts of packed sequences (null: sequence = batch row) */

#define LINNET_GATED_SIZES(FIELD)                                                                                 \
  FIELD(int64_t, S) FIELD(int64_t, B) FIELD(int64_t, T) FIELD(int64_t, H) FIELD(int64_t, D) FIELD(int64_t, V)     \
  FIELD(int64_t, G) FIELD(int64_t, rule) FIELD(int64_t, slots) FIELD(int64_t, floats)                             \
  FIELD(linnet_strides, q_strides) FIELD(linnet_strides, k_strides) FIELD(linnet_strides, v_strides)              \
  FIELD(linnet_strides, decay_strides) FIELD(linnet_strides, beta_strides) FIELD(linnet_strides, erase_strides)   \
  FIELD(linnet_strides, rate_strides) FIELD(int64_t, threads)

#define LINNET_FIELDS_gated_forward(FIELD)                                                                                \
  FIELD(float *, out)      /* [B,T,H,V] */                                                                        \
  FIELD(float *, s_out)    /* [S,H,D,V] final state (null: not wanted) */                                         \
  FIELD(float *, kept)     /* [slots,H,floats] states for the backward pass (null: not kept); see gated.h */      \
  FIELD(int64_t *, faults) /* [1] what is wrong with the inputs: enum Fault of gated.h */                         \
  LINNET_GATED_POINTERS(FIELD)                                                                                    \
  FIELD(const float *, s0) /* [S,H,D,V] initial state (null: zero) */                                             \
  LINNET_GATED_SIZES(FIELD)

#define LINNET_FIELDS_gated_backward(FIELD)                                                                       \
  FIELD(float *, dq) FIELD(float *, dk) FIELD(float *, dv) /* like q, k, v, but contiguous */                     \
  FIELD(float *, ddecay) FIELD(float *, dbeta) FIELD(float *, derase) FIELD(float *, drate) /* or null */         \
  FIELD(float *, ds0)        /* [S,H,D,V] (null: not wanted) */                                                   \
  FIELD(const float *, g)    /* [B,T,H,V] gradient of out, by g_strides */                                        \
  FIELD(const float *, gs)   /* [S,H,D,V] gradient of s_out (null: zero) */                                       \
  FIELD(const float *, kept) /* of the forward */                                                                 \
  LINNET_GATED_POINTERS(FIELD)                                                                                    \
  FIELD(linnet_strides, g_strides)                                                                                \
  LINNET_GATED_SIZES(FIELD)
