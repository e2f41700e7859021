#include "kernels/cpu/avx2/planar.h"

BELLHOP_PLANAR_KERNELS(mxfp4_planar, kMxfp4Planar)
BELLHOP_PLANAR_KERNELS(nvfp4_planar, kNvfp4Planar)
BELLHOP_PLANAR_KERNELS(mxfp4_kmajor, kMxfp4KMajor)
BELLHOP_PLANAR_KERNELS(nvfp4_kmajor, kNvfp4KMajor)
