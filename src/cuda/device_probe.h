// Host side of the probe kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace bellhop::cuda {

constexpr int kProbeThreads = 256;

// out [kProbeThreads + 1], device memory: element i becomes ProbePattern(i), the last one the architecture that the
// kernel was compiled for.
cudaError_t LaunchProbe(uint32_t* out, cudaStream_t stream);

constexpr uint32_t ProbePattern(uint32_t i) { return (i + 1) * 2654435761u; }

}  // namespace bellhop::cuda
