#include "kernels/cpu/avx512/planar.h"

BELLHOP_PLANAR_KERNELS(int4_sm80, kInt4Sm80)
BELLHOP_PLANAR_KERNELS(int8_sm80, kInt8Sm80)
