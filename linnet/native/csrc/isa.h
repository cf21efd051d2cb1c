// What a kernel is called in each instruction set: every source that defines some is compiled once per set, with
// LINNET_ISA naming it, and ends with the functions it gives to the table.
//
//     LINNET_ICL_CALLS(LINNET_DEFINE)      linnet_icl_gradient_avx2(c) { return icl_gradient(c); } and so on
#pragma once
#include "linnet.h"

#define LINNET_JOIN_(a, b) a##b
#define LINNET_JOIN(a, b) LINNET_JOIN_(a, b)
#define LINNET_TEXT_(x) #x
#define LINNET_TEXT(x) LINNET_TEXT_(x)

#define LINNET_TABLE LINNET_JOIN(linnet_table_, LINNET_ISA)
#define LINNET_NAME(name) LINNET_JOIN(linnet_##name##_, LINNET_ISA)
#define LINNET_DECLARE(name) extern "C" int LINNET_NAME(name)(const linnet_##name##_call *);
#define LINNET_DEFINE(name) \
  extern "C" int LINNET_NAME(name)(const linnet_##name##_call *c) { return name(c); }
