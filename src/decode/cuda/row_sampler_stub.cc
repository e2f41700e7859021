// Builds without CUDA: no sampler can be made, because memory on a device cannot.
#include "decode/cuda/row_sampler.h"

namespace bellhop::decode {

Status RowSampler::Launch(const SampleArgs& args, const cuda::Stream& stream) {
  return Unsupported("this binary was built without CUDA");
}

}  // namespace bellhop::decode
