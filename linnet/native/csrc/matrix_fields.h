// A packed matrix, as matmul.h multiplies it. linnet/native/matmul.py packs them.
#pragma once
#include "fields.h"

enum { LINNET_FLOAT32 = 0, LINNET_BFLOAT16 = 1, LINNET_INT8 = 2 };

// y = W x + bias, packed in panels of 32 outputs: see matmul.h.
#define LINNET_FIELDS_matrix(FIELD)                                                                               \
  FIELD(const void *, w)                                                                                          \
  FIELD(const float *, scale)  /* int8: [out padded to 32], weight = scale * integer; else null */                \
  FIELD(const int32_t *, sums) /* int8: [out padded to 32], sum of the integers of a row; else null */            \
  FIELD(const float *, bias)   /* [out padded to 32], or null */                                                  \
  FIELD(int64_t, out)          /* 0: there is no such matrix */                                                   \
  FIELD(int64_t, in)                                                                                              \
  FIELD(int64_t, kind) /* one of the above */
