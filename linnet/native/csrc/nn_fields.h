// What the kernels on rows take (nn.h, causal_conv.h): norm, activation, rotation, cross entropy, convolution.
//
// Tensors are [rows,cols]. Gradients of weights and biases are sums over the rows, added to what is there already.
#pragma once
#include "fields.h"

#define LINNET_FIELDS_norm(FIELD)                                                                                 \
  FIELD(float *, out)          /* [rows,cols] */                                                                  \
  FIELD(float *, stat)         /* [rows,2] mean and 1 / deviation */                                              \
  FIELD(const float *, x)      /* [rows,cols] */                                                                  \
  FIELD(const float *, weight) /* [cols] (null: 1) */                                                             \
  FIELD(const float *, bias)   /* [cols] (null: 0) */                                                             \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, rms) FIELD(int64_t, threads)                           \
  FIELD(double, eps)

#define LINNET_FIELDS_norm_backward(FIELD)                                                                        \
  FIELD(float *, dx)           /* [rows,cols] */                                                                  \
  FIELD(float *, dweight)      /* [cols] (null: not wanted) */                                                    \
  FIELD(float *, dbias)        /* [cols] (null: not wanted) */                                                    \
  FIELD(const float *, g)      /* [rows,cols] gradient of out */                                                  \
  FIELD(const float *, x)      /* [rows,cols] */                                                                  \
  FIELD(const float *, weight) /* [cols] (null: 1) */                                                             \
  FIELD(const float *, stat)   /* [rows,2] of the forward */                                                      \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, rms) FIELD(int64_t, threads)

// kind: one of enum Activation; width: of a row of `hidden`, 2 cols for swiglu (gate, then value), else cols
#define LINNET_FIELDS_activation(FIELD)                                                                           \
  FIELD(float *, out)        /* [rows,cols] */                                                                    \
  FIELD(float *, hidden)     /* [rows,width], the bias is added in place */                                       \
  FIELD(const float *, bias) /* [width] (null: 0) */                                                              \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, width) FIELD(int64_t, kind) FIELD(int64_t, threads)

#define LINNET_FIELDS_activation_backward(FIELD)                                                                  \
  FIELD(float *, dhidden)      /* [rows,width]; may be g where width = cols */                                    \
  FIELD(float *, out)          /* [rows,cols] the activation, computed again */                                   \
  FIELD(float *, dbias)        /* [width] (null: not wanted) */                                                   \
  FIELD(const float *, g)      /* [rows,cols] gradient of out */                                                  \
  FIELD(const float *, hidden) /* [rows,width] with its bias */                                                   \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, width) FIELD(int64_t, kind) FIELD(int64_t, threads)

// out = (x + skip u) silu(z)
#define LINNET_FIELDS_gate(FIELD)                                                                                 \
  FIELD(float *, out)        /* [rows,cols] */                                                                    \
  FIELD(const float *, x)    /* [rows,cols] */                                                                    \
  FIELD(const float *, z)    /* [rows,cols] by z_stride */                                                        \
  FIELD(const float *, u)    /* [rows,cols] by u_stride (null: 0) */                                              \
  FIELD(const float *, skip) /* [cols] (null where u is) */                                                       \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, z_stride) FIELD(int64_t, u_stride)                     \
  FIELD(int64_t, threads)

#define LINNET_FIELDS_gate_backward(FIELD)                                                                        \
  FIELD(float *, dx)         /* [rows,cols] */                                                                    \
  FIELD(float *, dz)         /* [rows,cols] */                                                                    \
  FIELD(float *, du)         /* [rows,cols] (null where u is) */                                                  \
  FIELD(float *, dskip)      /* [cols] (null where u is) */                                                       \
  FIELD(const float *, g)    /* [rows,cols] gradient of out */                                                    \
  FIELD(const float *, x)    /* [rows,cols] */                                                                    \
  FIELD(const float *, z)    /* [rows,cols] by z_stride */                                                        \
  FIELD(const float *, u)    /* [rows,cols] by u_stride (null: 0) */                                              \
  FIELD(const float *, skip) /* [cols] (null where u is) */                                                       \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, z_stride) FIELD(int64_t, u_stride)                     \
  FIELD(int64_t, threads)

// out[k] = x + share[k] change, k < count <= 8
#define LINNET_FIELDS_mixtures(FIELD)                                                                             \
  FIELD(float *, out)          /* [count,rows,cols] */                                                            \
  FIELD(const float *, x)      /* [rows,cols] */                                                                  \
  FIELD(const float *, change) /* [rows,cols] */                                                                  \
  FIELD(const float *, share)  /* [count,cols] */                                                                 \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, count) FIELD(int64_t, threads)

#define LINNET_FIELDS_mixtures_backward(FIELD)                                                                    \
  FIELD(float *, dx)           /* [rows,cols] */                                                                  \
  FIELD(float *, dchange)      /* [rows,cols] */                                                                  \
  FIELD(float *, dshare)       /* [count,cols] */                                                                 \
  FIELD(const float *, g0) FIELD(const float *, g1) FIELD(const float *, g2) FIELD(const float *, g3)             \
  FIELD(const float *, g4) FIELD(const float *, g5) FIELD(const float *, g6) FIELD(const float *, g7)             \
  /* [rows,cols] gradients of out[k] (null: 0) */                                                                 \
  FIELD(const float *, change) /* [rows,cols] */                                                                  \
  FIELD(const float *, share)  /* [count,cols] */                                                                 \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, count) FIELD(int64_t, threads)

// Row r turns by row (first + r) % period of the table; back: the other way.
#define LINNET_FIELDS_rotate(FIELD)                                                                               \
  FIELD(float *, out)       /* [rows,cols] by out_stride; may be x */                                             \
  FIELD(const float *, x)   /* [rows,cols] by x_stride */                                                         \
  FIELD(const float *, cos) /* [period,half] (null: copy x) */                                                    \
  FIELD(const float *, sin) /* [period,half] (null: copy x) */                                                    \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, out_stride) FIELD(int64_t, x_stride)                   \
  FIELD(int64_t, period) FIELD(int64_t, half) FIELD(int64_t, first) FIELD(int64_t, back) FIELD(int64_t, threads)

#define LINNET_FIELDS_cross_entropy(FIELD)                                                                        \
  FIELD(float *, scores)          /* [rows,cols]; with `gradient` they become softmax - onehot */                 \
  FIELD(float *, losses)          /* [rows] */                                                                    \
  FIELD(const int64_t *, targets) /* [rows], negative = not counted */                                            \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, gradient) FIELD(int64_t, threads)

#define LINNET_FIELDS_column_sums(FIELD)                                                                          \
  FIELD(float *, sums)    /* [cols] += the rows of x */                                                           \
  FIELD(const float *, x) /* [rows,cols] by x_stride */                                                           \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, x_stride) FIELD(int64_t, threads)

// Rows are the tokens of sequences of `length` rows; weight[j] is for the input j tokens ago.
#define LINNET_FIELDS_causal_conv(FIELD)                                                                          \
  FIELD(float *, out)          /* [rows,cols] */                                                                  \
  FIELD(const float *, x)      /* [rows,cols] */                                                                  \
  FIELD(const float *, weight) /* [kernel_size,cols] */                                                           \
  FIELD(const float *, bias)   /* [cols] (null: 0) */                                                             \
  FIELD(const float *, gate)   /* [rows,cols] (null: none) */                                                     \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, kernel_size) FIELD(int64_t, length)                    \
  FIELD(int64_t, threads)

#define LINNET_FIELDS_causal_conv_backward(FIELD)                                                                 \
  FIELD(float *, dx)           /* [rows,cols] */                                                                  \
  FIELD(float *, dgate)        /* [rows,cols] (null where gate is) */                                             \
  FIELD(float *, dweight)      /* [kernel_size,cols] (null: not wanted) */                                        \
  FIELD(float *, dbias)        /* [cols] (null: not wanted) */                                                    \
  FIELD(const float *, g)      /* [rows,cols] gradient of out */                                                  \
  FIELD(const float *, x)      /* [rows,cols] */                                                                  \
  FIELD(const float *, weight) /* [kernel_size,cols] */                                                           \
  FIELD(const float *, bias)   /* [cols] (null: 0) */                                                             \
  FIELD(const float *, gate)   /* [rows,cols] (null: none) */                                                     \
  FIELD(int64_t, rows) FIELD(int64_t, cols) FIELD(int64_t, kernel_size) FIELD(int64_t, length)                    \
  FIELD(int64_t, threads)

// Values drawn from the parameters that a model predicts for each row (sample.h).
#define LINNET_FIELDS_choose(FIELD)                                                                               \
  FIELD(int64_t *, values)        /* [rows] */                                                                    \
  FIELD(const float *, params)    /* [rows,width]: width / 3 logistics of a mixture, or width = levels scores */  \
  FIELD(const double *, uniforms) /* [rows,2] in [0, 1) */                                                        \
  FIELD(int64_t, rows) FIELD(int64_t, width) FIELD(int64_t, levels) FIELD(int64_t, mixture)
