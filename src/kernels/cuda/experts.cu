// Experts of a decode step, by the format of their matrices.
#include "kernels/cuda/any_format.h"
#include "kernels/cuda/experts_format.h"
#include "kernels/cuda/tile_dispatch.cuh"

namespace bellhop::kernels {

cudaError_t LaunchExpertFc1(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const DeviceMatrix matrices[2] = {args.bank.gate, args.bank.up};
  return DispatchTileFormat(
      SharedTileFormat(matrices, 2), [&]<typename Format>() { return LaunchExpertFc1As<Format>(args, bucket, queue); },
      [&] { return LaunchExpertFc1Any(args, queue); });
}

cudaError_t LaunchExpertFc2(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  return DispatchTileFormat(
      SharedTileFormat(&args.bank.down, 1),
      [&]<typename Format>() { return LaunchExpertFc2As<Format>(args, bucket, queue); },
      [&] { return LaunchExpertFc2Any(args, queue); });
}

}  // namespace bellhop::kernels
