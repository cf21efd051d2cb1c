// The C ABI of the native kernels: every function takes one struct and returns a status. No torch, no Python, no C++.
//
//     int linnet_norm(const linnet_norm_call *);      and so for each name in LINNET_CALLS
//
// The fields of each struct stand once, in *_fields.h. linnet/native/structs.py declares them again for Python, and the
// two are compared by name, kind and offset when the library is loaded (layout.h).
#pragma once
#include "attention_fields.h"
#include "gated_fields.h"
#include "icl_fields.h"
#include "model_fields.h"
#include "nn_fields.h"
#include "scan_fields.h"

#define LINNET_ABI 9

enum { LINNET_OK = 0, LINNET_BAD_ARGUMENT = 1, LINNET_NO_MEMORY = 2, LINNET_BAD_CU = 3, LINNET_BAD_POSITION = 4 };

// Structs that others contain or point to.
#define LINNET_PARTS(PART) \
  PART(strides) PART(matrix) PART(map) PART(gated) PART(rwkv) PART(scan) PART(layer) PART(model) PART(decode)

// Functions with a kernel for each instruction set.
#define LINNET_CALLS(CALL) \
  LINNET_LINEAR_CALLS(CALL) LINNET_GATED_CALLS(CALL) LINNET_SCAN_CALLS(CALL) LINNET_ROW_CALLS(CALL)               \
  LINNET_DECODE_CALLS(CALL) LINNET_ICL_CALLS(CALL)

// By the source that defines them: linear.cpp, gated.cpp, scan.cpp, nn.cpp, decode.cpp, icl.cpp.
#define LINNET_LINEAR_CALLS(CALL) CALL(forward) CALL(backward) CALL(step)
#define LINNET_GATED_CALLS(CALL) CALL(gated_forward) CALL(gated_backward)
#define LINNET_ROW_CALLS(CALL)                                                                                    \
  CALL(norm) CALL(norm_backward) CALL(activation) CALL(activation_backward) CALL(gate) CALL(gate_backward)        \
  CALL(mixtures) CALL(mixtures_backward) CALL(rotate) CALL(cross_entropy) CALL(column_sums)                       \
  CALL(causal_conv) CALL(causal_conv_backward)
#define LINNET_DECODE_CALLS(CALL) CALL(matmul)
#define LINNET_ICL_CALLS(CALL) CALL(icl_gradient) CALL(icl_answers) CALL(icl_jacobian) CALL(icl_train)
#define LINNET_SCAN_CALLS(CALL) CALL(selective_scan) CALL(selective_scan_backward) CALL(wkv) CALL(wkv_backward)

// Functions with one kernel for all.
#define LINNET_PLAIN_CALLS(CALL) CALL(choose)

LINNET_PARTS(LINNET_PART_STRUCT)
LINNET_CALLS(LINNET_CALL_STRUCT)
LINNET_PLAIN_CALLS(LINNET_CALL_STRUCT)

// One table per instruction set; api.cpp picks the widest one this processor has.
#define LINNET_ENTRY(name) int (*name)(const linnet_##name##_call *);
typedef struct {
  const char *isa;
  LINNET_CALLS(LINNET_ENTRY)
  int (*read)(const float *p, int64_t bytes, int64_t threads, float *sink);
  int64_t (*decode_scratch)(const linnet_model *, int64_t B, int64_t threads, int64_t longest);
  int (*decode)(const linnet_decode *, const linnet_model *);
  int64_t lanes;  // numbers of 4 bytes in a vector
} linnet_table;
