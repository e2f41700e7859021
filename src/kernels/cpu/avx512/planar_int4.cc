#include "kernels/cpu/avx512/planar.h"

BELLHOP_PLANAR_KERNELS(int4, kInt4)
