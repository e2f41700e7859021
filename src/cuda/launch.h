// Kernel launches that say what they move. For .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/launch_queue.h"
#include "cuda/nvtx.h"

namespace bellhop::cuda {

// What a launch reads and writes in device or host memory, and its multiply-adds times two: a profiler's range shows
// the bytes, LaunchTotals sums both.
struct LaunchCost {
  const char* name = "";  // a literal
  uint64_t bytes = 0;
  uint64_t flops = 0;
};

struct LaunchShape {
  dim3 grid, block;
  uint32_t shared_bytes = 0;
  // Programmatic dependent launch: the kernel may start while the one before it ends, and waits for it by itself
  // (cudaGridDependencySynchronize) before it reads what that one wrote.
  bool overlap = false;
};

// Arguments are converted to the kernel's parameter types. The caller turns the error into a status
// (BELLHOP_CUDA_CHECK).
template <typename... Params, typename... Args>
cudaError_t Launch(const LaunchQueue& queue, const LaunchCost& cost, const LaunchShape& shape,
                   void (*kernel)(Params...), Args&&... args) {
  const NvtxRange range(cost.name, cost.bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = queue.stream;
  config.attrs = &attribute;
  config.numAttrs = shape.overlap && queue.overlap ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (error != cudaSuccess) return error;
  ++queue.totals->launches;
  queue.totals->bytes += cost.bytes;
  queue.totals->flops += cost.flops;
  return cudaSuccess;
}

}  // namespace bellhop::cuda
