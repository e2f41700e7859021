// What of RowSampler needs the CUDA runtime.
#include "cuda/cuda_try.h"
#include "decode/cuda/row_sampler.h"
#include "decode/cuda/sampler_kernels.h"

namespace bellhop::decode {

Status RowSampler::Launch(const SampleArgs& args, const cuda::Stream& stream) {
  BELLHOP_CUDA_CHECK(device_, LaunchSample(args, stream.queue()));
  return Status();
}

}  // namespace bellhop::decode
