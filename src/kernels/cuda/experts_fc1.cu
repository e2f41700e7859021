#include "kernels/cuda/any_format.h"
#include "kernels/cuda/experts_stream.cuh"

namespace bellhop::kernels {

cudaError_t LaunchExpertFc1(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const DeviceMatrix matrices[2] = {args.bank.gate, args.bank.up};
  return DispatchTileFormat(
      SharedTileFormat(matrices, 2),
      [&]<typename Format>() {
        using namespace expert_stream;
        if (bucket == 1) {
          return args.x.terms.terms == 3 ? LaunchFc1As<Format, 3, true>(args, queue)
                                         : LaunchFc1As<Format, 2, true>(args, queue);
        }
        return args.x.terms.terms == 3 ? LaunchFc1As<Format, 3, false>(args, queue)
                                       : LaunchFc1As<Format, 2, false>(args, queue);
      },
      [&] { return LaunchExpertFc1Any(args, queue); });
}

}  // namespace bellhop::kernels
