#include "kernels/cuda/prompt_wgmma.h"

#include "cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tile_formats.cuh"

namespace bellhop::kernels {
namespace {

constexpr int kSumThreads = 256;

// A thread: eight groups of a row.
__global__ void __launch_bounds__(kSumThreads) GroupSumsKernel(TermRows x, int64_t count) {
  LetNextStart();
  AwaitPrevious();
  const int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (i >= count) return;
  const auto* const from = reinterpret_cast<const float4*>(x.sums) + 4 * i;
  uint32_t high[4], low[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const float4 four = from[w];
    float a = four.x + four.y, b = four.z + four.w;
    high[w] = TakePair(a, b);
    low[w] = TakePair(a, b);
  }
  auto* const to = reinterpret_cast<uint4*>(x.group_sums) + 2 * i;
  to[0] = make_uint4(high[0], high[1], high[2], high[3]);
  to[1] = make_uint4(low[0], low[1], low[2], low[3]);
}

}  // namespace

cudaError_t LaunchGroupSums(const TermRows& x, int64_t rows, const cuda::LaunchQueue& queue) {
  if (x.group_sums == nullptr || rows <= 0) return cudaErrorInvalidValue;
  const int64_t count = rows * (x.stride / 256);
  return cuda::Launch(queue, {.name = "group sums", .bytes = static_cast<uint64_t>(count) * 96},
                      {.grid = dim3(static_cast<unsigned>((count + kSumThreads - 1) / kSumThreads)),
                       .block = dim3(kSumThreads),
                       .overlap = true},
                      GroupSumsKernel, x, count);
}

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
