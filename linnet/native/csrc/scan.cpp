// The scans: Mamba's and that of RWKV-4.
#include "isa.h"
#include "selective_scan.h"
#include "wkv.h"

LINNET_SCAN_CALLS(LINNET_DEFINE)
