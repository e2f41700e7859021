// Host side of the kernel that reads memory as fast as it comes. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/launch_queue.h"

namespace bellhop::cuda {

// Reads the whole 16-byte words of `bytes` bytes at `data`: device memory, or host memory that is mapped at the same
// address. `sink` is a word of device memory. `blocks`: several per multiprocessor.
cudaError_t LaunchReadMemory(const std::byte* data, uint64_t bytes, int blocks, uint32_t* sink,
                             const LaunchQueue& queue);

}  // namespace bellhop::cuda
