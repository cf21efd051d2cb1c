// How a struct of the C ABI is declared: its fields once, as a list of FIELD(type, name); the rest is generated.
//
//     #define LINNET_FIELDS_norm(FIELD) FIELD(float *, out) FIELD(int64_t, rows) ...
//     LINNET_CALL_STRUCT(norm)     typedef struct { float *out; int64_t rows; ... } linnet_norm_call;
//
// layout.h describes the same lists to Python, so a field that is not checked at load cannot exist. Every field is 8
// bytes wide, or a struct of such fields. In a call, pointers come first. Strides count elements; the last axis of
// every tensor has stride 1, and tensors without strides are contiguous. A pointer may be null only where its comment
// says so.
#pragma once
#include <stdint.h>

#define LINNET_MEMBER(type, name) type name;
#define LINNET_PART_STRUCT(name) typedef struct { LINNET_FIELDS_##name(LINNET_MEMBER) } linnet_##name;
#define LINNET_CALL_STRUCT(name) typedef struct { LINNET_FIELDS_##name(LINNET_MEMBER) } linnet_##name##_call;
