// The decoder, its matrix product, and the table of everything that is compiled for this instruction set.
#include "decode.h"
#include "isa.h"

LINNET_DECODE_CALLS(LINNET_DEFINE)

LINNET_CALLS(LINNET_DECLARE)

#define ENTRY(name) LINNET_NAME(name),

extern "C" const linnet_table LINNET_TABLE;
const linnet_table LINNET_TABLE = {LINNET_TEXT(LINNET_ISA), LINNET_CALLS(ENTRY) read_sweep, decode_scratch, decode, VL};
