// What the scans take (selective_scan.h, wkv.h): a recurrence for every channel of every sequence.
//
// B batch, T time, E channels, N numbers per channel, S sequences: S = B, or those of cu [S+1] in one row (B = 1).
// Strides count elements: of the batch row and of the token. The forward keeps the state before every `chunk` tokens in
// `kept` [slots,width], for the backward: sequence s has slots from first / chunk + s on, first being the place of its
// first token among all B T.
#pragma once
#include "fields.h"

enum { LINNET_SCAN_CHUNK = 64 };  // the longest chunk

#define LINNET_SCAN_PLACES(FIELD)                                                                                 \
  FIELD(const uint8_t *, mask) /* [B,T], 0 = padding (null: none) */                                              \
  FIELD(const int64_t *, cu)   /* [S+1] (null: not packed) */
#define LINNET_SCAN_SIZES(FIELD)                                                                                  \
  FIELD(int64_t, S) FIELD(int64_t, B) FIELD(int64_t, T) FIELD(int64_t, E)                                         \
  FIELD(int64_t, slots) FIELD(int64_t, width) FIELD(int64_t, chunk) FIELD(int64_t, threads)

#define LINNET_SELECTIVE_SCAN_INPUTS(FIELD)                                                                       \
  FIELD(const float *, x)  /* [B,T,E] by strides */                                                               \
  FIELD(const float *, dt) /* [B,T,E] by strides */                                                               \
  FIELD(const float *, a)  /* [E,N] */                                                                            \
  FIELD(const float *, b)  /* [B,T,N] by strides */                                                               \
  FIELD(const float *, c)  /* [B,T,N] by strides */                                                               \
  FIELD(const float *, s0) /* [S,E,N] (null: 0) */                                                                \
  LINNET_SCAN_PLACES(FIELD)
#define LINNET_SELECTIVE_SCAN_SIZES(FIELD)                                                                        \
  LINNET_SCAN_SIZES(FIELD)                                                                                        \
  FIELD(int64_t, N) FIELD(int64_t, x_b) FIELD(int64_t, x_t) FIELD(int64_t, dt_b) FIELD(int64_t, dt_t)             \
  FIELD(int64_t, b_b) FIELD(int64_t, b_t) FIELD(int64_t, c_b) FIELD(int64_t, c_t)

#define LINNET_FIELDS_selective_scan(FIELD)                                                                       \
  FIELD(float *, y)     /* [B,T,E] */                                                                             \
  FIELD(float *, s_out) /* [S,E,N] (null: not wanted) */                                                          \
  FIELD(float *, kept)  /* [slots,width] (null: not wanted) */                                                    \
  LINNET_SELECTIVE_SCAN_INPUTS(FIELD)                                                                             \
  LINNET_SELECTIVE_SCAN_SIZES(FIELD)

#define LINNET_FIELDS_selective_scan_backward(FIELD)                                                              \
  FIELD(float *, dx)         /* [B,T,E] */                                                                        \
  FIELD(float *, ddt)        /* [B,T,E] */                                                                        \
  FIELD(float *, da)         /* [E,N] */                                                                          \
  FIELD(float *, db)         /* [B,T,N] */                                                                        \
  FIELD(float *, dc)         /* [B,T,N] */                                                                        \
  FIELD(float *, ds0)        /* [S,E,N] (null: not wanted) */                                                     \
  FIELD(const float *, g)    /* [B,T,E] gradient of y, by strides */                                              \
  FIELD(const float *, gs)   /* [S,E,N] gradient of s_out (null: 0) */                                            \
  FIELD(const float *, kept) /* [slots,width] of the forward */                                                   \
  LINNET_SELECTIVE_SCAN_INPUTS(FIELD)                                                                             \
  FIELD(int64_t, g_b) FIELD(int64_t, g_t)                                                                         \
  LINNET_SELECTIVE_SCAN_SIZES(FIELD)

#define LINNET_WKV_INPUTS(FIELD)                                                                                  \
  FIELD(const float *, k)     /* [B,T,E] by strides */                                                            \
  FIELD(const float *, v)     /* [B,T,E] by strides */                                                            \
  FIELD(const float *, decay) /* [E] */                                                                           \
  FIELD(const float *, bonus) /* [E] */                                                                           \
  FIELD(const float *, s0)    /* [S,3,E] n, d, p (null: 0) */                                                     \
  LINNET_SCAN_PLACES(FIELD)
#define LINNET_WKV_SIZES(FIELD)                                                                                   \
  LINNET_SCAN_SIZES(FIELD) FIELD(int64_t, k_b) FIELD(int64_t, k_t) FIELD(int64_t, v_b) FIELD(int64_t, v_t)

#define LINNET_FIELDS_wkv(FIELD)                                                                                  \
  FIELD(float *, out)   /* [B,T,E] */                                                                             \
  FIELD(float *, s_out) /* [S,3,E] (null: not wanted) */                                                          \
  FIELD(float *, kept)  /* [slots,width] (null: not wanted) */                                                    \
  LINNET_WKV_INPUTS(FIELD)                                                                                        \
  LINNET_WKV_SIZES(FIELD)

#define LINNET_FIELDS_wkv_backward(FIELD)                                                                         \
  FIELD(float *, dk)         /* [B,T,E] */                                                                        \
  FIELD(float *, dv)         /* [B,T,E] */                                                                        \
  FIELD(float *, ddecay)     /* [E] */                                                                            \
  FIELD(float *, dbonus)     /* [E] */                                                                            \
  FIELD(float *, ds0)        /* [S,3,E] (null: not wanted) */                                                     \
  FIELD(const float *, g)    /* [B,T,E] gradient of out, by strides */                                            \
  FIELD(const float *, gs)   /* [S,3,E] gradient of s_out (null: 0); that of p is not read */                     \
  FIELD(const float *, kept) /* [slots,width] of the forward */                                                   \
  LINNET_WKV_INPUTS(FIELD)                                                                                        \
  FIELD(int64_t, g_b) FIELD(int64_t, g_t)                                                                         \
  LINNET_WKV_SIZES(FIELD)
