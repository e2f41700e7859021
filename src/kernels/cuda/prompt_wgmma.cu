#include "kernels/cuda/prompt_wgmma.h"

#include "kernels/cuda/tile_formats.cuh"

namespace bellhop::kernels {

cudaError_t ChoosePromptMath(PromptDevice* device) {
  int id = 0, major = 0, minor = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&id);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, id);
  if (error != cudaSuccess) return error;
  // Code for sm_90a runs there and nowhere else.
  *device = {.math = major == 9 && minor == 0 ? PromptMath::kWgmma : PromptMath::kMma,
             .multiprocessors = multiprocessors};
  return cudaSuccess;
}

int32_t WgmmaTileRows(int32_t rows, int32_t blocks, int32_t multiprocessors) {
  // Decoding weights costs about what these rows do.
  constexpr int64_t kDecodeRows = 48;
  int32_t best = 0;
  int64_t least = INT64_MAX;
  const int32_t fewest = (rows + kWgmmaMaxRows - 1) / kWgmmaMaxRows;
  for (int32_t tiles = fewest; tiles <= 2 * fewest; ++tiles) {
    const int32_t each = EvenTileRows(rows, tiles), count = (rows + each - 1) / each;
    const int64_t turns = (int64_t{count} * blocks + multiprocessors - 1) / multiprocessors;
    const int64_t cost = turns * (WgmmaWidth(each) + kDecodeRows);
    if (cost < least) least = cost, best = each;
  }
  return best;
}

cudaError_t LaunchWgmmaProduct(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  using quant::WeightFormat;
  if (p.device.multiprocessors <= 0 || p.tile_rows > kWgmmaMaxRows) return cudaErrorInvalidValue;
  switch (p.w.format) {
    // As two terms: its error is below that of the activations by far.
    case WeightFormat::kF32: return prompt_wgmma::LaunchAs<TileTwoTermF32>(p, queue);
    case WeightFormat::kF16: return prompt_wgmma::LaunchAs<TileF16>(p, queue);
    case WeightFormat::kBF16: return prompt_wgmma::LaunchAs<TileBF16>(p, queue);
    case WeightFormat::kQ4_0: return prompt_wgmma::LaunchAs<TileQ4_0>(p, queue);
    case WeightFormat::kQ8_0: return prompt_wgmma::LaunchAs<TileQ8_0>(p, queue);
    case WeightFormat::kMXFP4: return prompt_wgmma::LaunchAs<TileMxfp4>(p, queue);
    case WeightFormat::kQ4K: return prompt_wgmma::LaunchAs<TileQ4K>(p, queue);
    case WeightFormat::kQ6K: return prompt_wgmma::LaunchAs<TileQ6K>(p, queue);
    case WeightFormat::kInt3: return prompt_wgmma::LaunchAs<TileInt3>(p, queue);
    case WeightFormat::kIQ3XXS: return prompt_wgmma::LaunchAs<TileIq3Xxs>(p, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bellhop::kernels
