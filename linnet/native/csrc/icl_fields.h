// What the kernels of in-context regression take (regress.h): gradient, answers, Jacobian and training.
//
// L layers, K heads, E = d + 1 for d features. p, q are [L,K,p_rows,p_cols]: full matrices with p_rows = p_cols = E, or
// diagonal ones as their x part and y part, p_rows = 2 and p_cols = 1. Stored sequences lie side by side in `blocks` of
// `lanes` (linnet_icl_lanes), each as `packed` = E (E + 1) / 2 + d numbers: S on and right of its diagonal, then the
// target. Fresh sequences are drawn from the random stream `seed`, from number `first` on.
#pragma once
#include "fields.h"

enum { LINNET_QUERY = 0, LINNET_WEIGHTS = 1, LINNET_RIDGE = 2, LINNET_POSTERIOR = 3 };  // target

#define LINNET_FRESH_POINTERS(FIELD)                                                                              \
  FIELD(const double *, sigma)      /* [choices]: values to choose from, or the top of a uniform distribution */  \
  FIELD(const double *, grid)       /* [points] of sigma, for LINNET_POSTERIOR */                                 \
  FIELD(const double *, log_weight) /* [points] */

#define LINNET_FRESH_SIZES(FIELD)                                                                                 \
  FIELD(int64_t, n)           /* tokens of a sequence */                                                          \
  FIELD(int64_t, choices) FIELD(int64_t, uniform) FIELD(int64_t, points)                                          \
  FIELD(int64_t, seed) FIELD(int64_t, first) FIELD(int64_t, target)                                               \
  FIELD(int64_t, augmented)   /* every how many blocks one is drawn wider than the problem says (0: none) */      \
  FIELD(double, augmented_x)  /* wider: inputs times this, */                                                     \
  FIELD(double, augmented_w)  /* weights times this, */                                                           \
  FIELD(double, augmented_weight) /* and how much such a block counts */                                          \
  FIELD(double, limit)        /* losses above this are left out */                                                \
  FIELD(double, temper)       /* gradients of losses above this are scaled by temper / loss (0: not) */

#define LINNET_ICL_SIZES(FIELD)                                                                                   \
  FIELD(int64_t, L) FIELD(int64_t, K) FIELD(int64_t, E) FIELD(int64_t, p_rows) FIELD(int64_t, p_cols)             \
  FIELD(int64_t, samples) FIELD(int64_t, threads)

#define LINNET_STORED_SIZES(FIELD)                                                                                \
  FIELD(int64_t, blocks) FIELD(int64_t, packed) FIELD(int64_t, lanes)                                             \
  FIELD(int64_t, wide) /* data and out are double, else float */

#define LINNET_FIELDS_icl_gradient(FIELD)                                                                         \
  FIELD(double *, dp) FIELD(double *, dq) /* like p and q: sums over the sequences */                             \
  FIELD(double *, loss)     /* [2]: sum of the losses; how many sequences were left out */                        \
  FIELD(const double *, p) FIELD(const double *, q)                                                               \
  FIELD(const void *, data) /* [blocks,packed,lanes] (null: fresh sequences) */                                   \
  LINNET_FRESH_POINTERS(FIELD) LINNET_ICL_SIZES(FIELD) LINNET_STORED_SIZES(FIELD) LINNET_FRESH_SIZES(FIELD)

#define LINNET_FIELDS_icl_answers(FIELD)                                                                          \
  FIELD(void *, out)        /* [blocks,outputs,lanes]; outputs = d: w */                                          \
  FIELD(const double *, p) FIELD(const double *, q)                                                               \
  FIELD(const void *, data) /* [blocks,packed,lanes] */                                                           \
  FIELD(int64_t, outputs)                                                                                         \
  LINNET_ICL_SIZES(FIELD) LINNET_STORED_SIZES(FIELD)

// outputs = d (1 + M): w, then dw / d(matrix entries); M = 2 L K E^2, or 4 L of a diagonal model
#define LINNET_FIELDS_icl_jacobian(FIELD) LINNET_FIELDS_icl_answers(FIELD)

#define LINNET_FIELDS_icl_train(FIELD)                                                                            \
  FIELD(double *, p) FIELD(double *, q)   /* changed in place */                                                  \
  FIELD(double *, dp) FIELD(double *, dq) /* scratch like p and q */                                              \
  FIELD(double *, loss)           /* [2], as above */                                                             \
  FIELD(double *, m) FIELD(double *, v) /* [2 L K p_rows p_cols] Adam's averages, of p and then of q */           \
  FIELD(double *, curve)          /* [steps] mean loss of each step */                                            \
  FIELD(const double *, rate)     /* [steps] learning rates */                                                    \
  FIELD(const uint8_t *, frozen)  /* [2 L K p_rows p_cols], 1 = stays as it is (null: none) */                    \
  LINNET_FRESH_POINTERS(FIELD) LINNET_ICL_SIZES(FIELD)                                                            \
  FIELD(int64_t, steps) FIELD(int64_t, done) /* how many now, how many before (for Adam's bias correction) */     \
  LINNET_FRESH_SIZES(FIELD)                                                                                       \
  FIELD(double, beta1) FIELD(double, beta2) FIELD(double, eps)                                                    \
  FIELD(double, clip) /* largest norm of a step's gradient (0: any) */
