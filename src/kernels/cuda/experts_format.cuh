// experts_format.h, for the sources that instantiate it.
#pragma once

#include "kernels/cuda/experts_format.h"
#include "kernels/cuda/experts_row.cuh"
#include "kernels/cuda/experts_stream.cuh"

namespace bellhop::kernels {

template <typename Format>
cudaError_t LaunchExpertFc1As(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  using expert_stream::LaunchFc1As;
  const bool exact = args.x.terms.terms == 3;
  if (bucket == 1) return exact ? LaunchFc1As<Format, 3, true>(args, queue) : LaunchFc1As<Format, 2, true>(args, queue);
  return exact ? LaunchFc1As<Format, 3, false>(args, queue) : LaunchFc1As<Format, 2, false>(args, queue);
}

template <typename Format>
cudaError_t LaunchExpertFc2As(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const bool exact = args.x.terms.terms == 3;
  if (bucket == 1 && !args.all_rows && args.used <= experts_row::kMaxRowRoutes) {
    return exact ? experts_row::LaunchFc2As<Format, 3>(args, queue) : experts_row::LaunchFc2As<Format, 2>(args, queue);
  }
  return exact ? expert_stream::LaunchFc2As<Format, 3>(args, bucket, queue)
               : expert_stream::LaunchFc2As<Format, 2>(args, bucket, queue);
}

}  // namespace bellhop::kernels
