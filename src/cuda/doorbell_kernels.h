// The doorbell's steps as kernels of their own. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/doorbell_wait.h"
#include "cuda/launch_queue.h"

namespace bellhop::cuda {

// BeginDeviceStep.
cudaError_t LaunchBeginStep(DoorbellState* state, const LaunchQueue& queue);
// ClassifyAndRing; all pointers of args and the state are device memory, the channel is mapped host memory.
cudaError_t LaunchClassifyAndRing(const ClassifyArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                  const LaunchQueue& queue);
// WaitAndAccumulate, behind everything that does not need its result: it holds some SMs until the CPU has answered.
cudaError_t LaunchWaitAndAccumulate(const WaitArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                    const LaunchQueue& queue);

}  // namespace bellhop::cuda
