#include "kernels/cuda/any_format.h"

#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/mat_vec.cuh"

namespace bellhop::kernels {

// One n8 tile a pass: this is the slow path.
cudaError_t LaunchMatVecAny(const MatVecArgs& args, const cuda::LaunchQueue& queue) {
  return args.x.terms == 3 ? mat_vec::LaunchAs<AnyFormat, 1, 3>(args, queue)
                           : mat_vec::LaunchAs<AnyFormat, 1, 2>(args, queue);
}

cudaError_t LaunchExpertFc1Any(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  return args.x.terms.terms == 3 ? experts::LaunchFc1As<AnyFormat, 1, 3>(args, queue)
                                 : experts::LaunchFc1As<AnyFormat, 1, 2>(args, queue);
}

cudaError_t LaunchExpertFc2Any(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  return args.x.terms.terms == 3 ? experts::LaunchFc2As<AnyFormat, 3>(args, queue)
                                 : experts::LaunchFc2As<AnyFormat, 2>(args, queue);
}

}  // namespace bellhop::kernels
