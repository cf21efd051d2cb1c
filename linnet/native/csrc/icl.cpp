// The kernels of in-context regression.
#include "isa.h"
#include "regress.h"

LINNET_ICL_CALLS(LINNET_DEFINE)
