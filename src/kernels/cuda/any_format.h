// The kernels of decode_step.h for formats that have no tiles, or several formats in one launch: they choose while they
// run. In a source of their own, because they hold the decoders of all formats. CUDA builds alone.
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {

cudaError_t LaunchMatVecAny(const MatVecArgs& args, const cuda::LaunchQueue& queue);
cudaError_t LaunchExpertFc1Any(const ExpertArgs& args, const cuda::LaunchQueue& queue);
cudaError_t LaunchExpertFc2Any(const ExpertArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
