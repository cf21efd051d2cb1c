// The row kernels of nn.h and the causal convolution.
#include "causal_conv.h"
#include "isa.h"
#include "nn.h"

LINNET_ROW_CALLS(LINNET_DEFINE)
