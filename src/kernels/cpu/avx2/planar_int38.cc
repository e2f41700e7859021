#include "kernels/cpu/avx2/planar.h"

BELLHOP_PLANAR_KERNELS(int3, kInt3)
BELLHOP_PLANAR_KERNELS(int8, kInt8)
