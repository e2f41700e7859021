#include "kernels/cuda/any_format.h"
#include "kernels/cuda/experts_row.cuh"
#include "kernels/cuda/experts_stream.cuh"

namespace bellhop::kernels {

cudaError_t LaunchExpertFc2(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const bool one_row = bucket == 1 && !args.all_rows && args.used <= experts_row::kMaxRowRoutes;
  return DispatchTileFormat(
      SharedTileFormat(&args.bank.down, 1),
      [&]<typename Format>() {
        if (one_row) {
          return args.x.terms.terms == 3 ? experts_row::LaunchFc2As<Format, 3>(args, queue)
                                         : experts_row::LaunchFc2As<Format, 2>(args, queue);
        }
        return args.x.terms.terms == 3 ? expert_stream::LaunchFc2As<Format, 3>(args, bucket, queue)
                                       : expert_stream::LaunchFc2As<Format, 2>(args, bucket, queue);
      },
      [&] { return LaunchExpertFc2Any(args, queue); });
}

}  // namespace bellhop::kernels
