// Attention of prompts for Hopper (sm_90a): the same arguments and contract as prompt_attention.h, another order of
// sums. CUDA builds alone.
#pragma once

#include "cuda/launch.h"
#include "kernels/cuda/prompt_attention.h"

namespace bellhop::kernels {

// Where AttendsWithWgmma, arguments that are possible. Sums of the results are not written.
cudaError_t LaunchWgmmaAttention(const PromptAttendArgs& args, const cuda::LaunchCost& cost,
                                 const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
