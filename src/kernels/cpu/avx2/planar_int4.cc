#include "kernels/cpu/avx2/planar.h"

BELLHOP_PLANAR_KERNELS(int4, kInt4)
