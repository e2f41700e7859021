#include "kernels/cuda/any_format.h"
#include "kernels/cuda/experts_row.cuh"

namespace bellhop::kernels {

// One n8 tile a pass: few rows of a step choose the same expert.
cudaError_t LaunchExpertFc1(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const DeviceMatrix matrices[2] = {args.bank.gate, args.bank.up};
  return DispatchTileFormat(
      SharedTileFormat(matrices, 2),
      [&]<typename Format>() {
        if (bucket == 1) {
          return args.x.terms.terms == 3 ? experts_row::LaunchFc1As<Format, 3>(args, queue)
                                         : experts_row::LaunchFc1As<Format, 2>(args, queue);
        }
        return args.x.terms.terms == 3 ? experts::LaunchFc1As<Format, 1, 3>(args, queue)
                                       : experts::LaunchFc1As<Format, 1, 2>(args, queue);
      },
      [&] { return LaunchExpertFc1Any(args, queue); });
}

}  // namespace bellhop::kernels
