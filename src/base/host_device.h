// Functions that kernels and host code share. No CUDA header: a build without CUDA has it too.
#pragma once

#if defined(__CUDACC__)
#define BELLHOP_HOST_DEVICE __host__ __device__
#else
#define BELLHOP_HOST_DEVICE
#endif
