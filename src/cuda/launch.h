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
  // Percent of an SM's L1 that should be shared memory; negative: the driver's choice. An SM changes its split only
  // when it is empty, so kernels that are to overlap ask for one and the same.
  int shared_carveout = kOverlapCarveout;
  // 100 KB on sm_90: a block of attention, and 150 KB of L1 for weights that are under way.
  static constexpr int kOverlapCarveout = 43;
};

// Arguments are converted to the kernel's parameter types. The caller turns the error into a status
// (BELLHOP_CUDA_CHECK).
template <typename... Params, typename... Args>
cudaError_t Launch(const LaunchQueue& queue, const LaunchCost& cost, const LaunchShape& shape,
                   void (*kernel)(Params...), Args&&... args) {
  const NvtxRange range(cost.name, cost.bytes);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = static_cast<unsigned>(shape.shared_carveout);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = !shape.overlap || !queue.overlap ? 0 : shape.shared_carveout < 0 ? 1 : 2;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (error != cudaSuccess) return error;
  ++queue.totals->launches;
  queue.totals->bytes += cost.bytes;
  queue.totals->flops += cost.flops;
  return cudaSuccess;
}

}  // namespace bellhop::cuda
