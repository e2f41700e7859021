// CUDA error codes as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"
#include "cuda/device.h"

namespace bellhop::cuda {

// OK for cudaSuccess. Otherwise kOutOfMemory, kNotFound (no driver, no device), kUnsupported (no code for the device)
// or kCuda, with the expression, the error's name and what it means.
Status CudaStatus(cudaError_t error, std::string_view expression);

// Errors after which the context is lost: every later call fails, and only a new process recovers.
bool IsStickyError(cudaError_t error);

// CudaStatus of a call on a device. A sticky error poisons the device. The runtime forgets other errors, so that no
// later call reports them again.
Status CheckCuda(Device* device, cudaError_t error, std::string_view expression);

// Returns the failure of a CUDA call on a device from the enclosing function. A poisoned device's call is not made.
#define BELLHOP_CUDA_CHECK(device, expr)                              \
  do {                                                                \
    BELLHOP_TRY((device)->poison().status());                         \
    BELLHOP_TRY(::bellhop::cuda::CheckCuda((device), (expr), #expr)); \
  } while (0)

// Returns the failure of a CUDA call from the enclosing function.
#define BELLHOP_CUDA_TRY(expr) BELLHOP_TRY(::bellhop::cuda::CudaStatus((expr), #expr))

}  // namespace bellhop::cuda
