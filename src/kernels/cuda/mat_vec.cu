#include "kernels/cuda/mat_vec.cuh"

#include "kernels/cuda/any_format.h"
#include "kernels/cuda/mat_vec_row.cuh"

namespace bellhop::kernels {

cudaError_t LaunchMatVec(const MatVecArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  return DispatchTileFormat(
      SharedTileFormat(args.matrices, args.count),
      [&]<typename Format>() {
        if (bucket == 1) {
          return args.x.terms == 3 ? mat_vec_row::LaunchAs<Format, 3>(args, queue)
                                   : mat_vec_row::LaunchAs<Format, 2>(args, queue);
        }
        return DispatchWidth(bucket, args.x.terms,
                             [&]<int kN, int kTerms>() { return mat_vec::LaunchAs<Format, kN, kTerms>(args, queue); });
      },
      [&] { return LaunchMatVecAny(args, queue); });
}

}  // namespace bellhop::kernels
