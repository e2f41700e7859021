// Experts of a decode step whose matrices lie in tiles of one format: the launchers of decode_step.h for it. A source
// for each format, which the build makes: they take long to compile. CUDA builds alone.
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {

template <typename Format>
cudaError_t LaunchExpertFc1As(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);
template <typename Format>
cudaError_t LaunchExpertFc2As(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
