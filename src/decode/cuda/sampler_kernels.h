// Sampling on a GPU, the same tokens as Sampler's. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch_queue.h"
#include "decode/cuda/device_sampling.h"

namespace bellhop::decode {

// One token for each row, in args.results: two kernels, the first over all rows at once, the second with a block for
// each row. Results do not depend on how blocks are scheduled. Logits, parameters and masks are read several times:
// keep them in device memory; results, biases and penalized tokens may be mapped pinned memory. cudaErrorInvalidValue:
// a vocabulary above kMaxSampledVocab, or sizes below 1.
cudaError_t LaunchSample(const SampleArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::decode
