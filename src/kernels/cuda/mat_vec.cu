#include "kernels/cuda/mat_vec.cuh"

#include "kernels/cuda/any_format.h"

namespace bellhop::kernels {

cudaError_t LaunchMatVec(const MatVecArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  return DispatchTileFormat(
      SharedTileFormat(args.matrices, args.count),
      [&]<typename Format>() {
        return DispatchWidth(bucket, args.x.terms,
                             [&]<int kN, int kTerms>() { return mat_vec::LaunchAs<Format, kN, kTerms>(args, queue); });
      },
      [&] { return LaunchMatVecAny(args, queue); });
}

}  // namespace bellhop::kernels
