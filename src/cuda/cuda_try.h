// CUDA error codes as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"

namespace bellhop::cuda {

// OK for cudaSuccess. Otherwise kOutOfMemory, kNotFound (no driver, no device), kUnsupported (no code for the device)
// or kCuda, with the expression, the error's name and what it means.
Status CudaStatus(cudaError_t error, std::string_view expression);

// Returns the failure of a CUDA call from the enclosing function.
#define BELLHOP_CUDA_TRY(expr) BELLHOP_TRY(::bellhop::cuda::CudaStatus((expr), #expr))

}  // namespace bellhop::cuda
