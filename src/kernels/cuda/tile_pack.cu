#include "kernels/cuda/tile_pack.h"

#include "cuda/launch.h"
#include "kernels/cuda/tile_pack.cuh"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

template <WeightFormat F>
__global__ void PackKernel(PackArgs args, int32_t chunks, int64_t pieces) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t piece = blockIdx.x * int64_t{blockDim.x / 32} + threadIdx.x / 32; piece < pieces;
       piece += int64_t{gridDim.x} * (blockDim.x / 32)) {
    const auto tile = static_cast<int32_t>(piece / chunks), c = static_cast<int32_t>(piece % chunks);
    auto row = [&](int i) {
      tile_pack::Source source;
      const int64_t at = int64_t{tile} * kTileRows + i;
      if (at >= args.rows) return source;
      source.row = args.from + at * args.row_bytes;
      source.bytes = args.row_bytes;
      if (PlanarBits(F) > 0) {
        source.scales = args.scales + at * args.scale_row_bytes;
        source.group = args.scale_group;
        source.cols = args.cols;
      }
      return source;
    };
    tile_pack::PackTileChunk<F>(row, c, lane, args.to + piece * Tiles(TileFormatOf(F)).chunk_bytes);
  }
}

template <WeightFormat F>
cudaError_t Pack(const PackArgs& args, const cuda::LaunchQueue& queue) {
  if (PlanarBits(F) > 0 && (args.scales == nullptr || args.scale_group % TileScaleColumns(F) != 0)) {
    return cudaErrorInvalidValue;
  }
  const TileGeometry tiles = Tiles(TileFormatOf(F));
  const int32_t row_tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int32_t chunks = (args.cols + tiles.chunk_cols - 1) / tiles.chunk_cols;
  const int64_t pieces = int64_t{row_tiles} * chunks;
  const auto blocks = static_cast<unsigned>(pieces / 8 + 1 < 4096 ? pieces / 8 + 1 : 4096);
  return cuda::Launch(queue,
                      {.name = "pack tiles",
                       .bytes = static_cast<uint64_t>(args.rows * (args.row_bytes + args.scale_row_bytes) +
                                                      pieces * tiles.chunk_bytes)},
                      {.grid = dim3(blocks), .block = dim3(256)}, PackKernel<F>, args, chunks, pieces);
}

}  // namespace

cudaError_t LaunchPackTiles(const PackArgs& args, const cuda::LaunchQueue& queue) {
  switch (args.format) {
    case WeightFormat::kF32: return Pack<WeightFormat::kF32>(args, queue);
    case WeightFormat::kF16: return Pack<WeightFormat::kF16>(args, queue);
    case WeightFormat::kBF16: return Pack<WeightFormat::kBF16>(args, queue);
    case WeightFormat::kQ4_0: return Pack<WeightFormat::kQ4_0>(args, queue);
    case WeightFormat::kQ8_0: return Pack<WeightFormat::kQ8_0>(args, queue);
    case WeightFormat::kMXFP4: return Pack<WeightFormat::kMXFP4>(args, queue);
    case WeightFormat::kQ4K: return Pack<WeightFormat::kQ4K>(args, queue);
    case WeightFormat::kQ6K: return Pack<WeightFormat::kQ6K>(args, queue);
    case WeightFormat::kIQ3XXS: return Pack<WeightFormat::kIQ3XXS>(args, queue);
    case WeightFormat::kInt4: return Pack<WeightFormat::kInt4>(args, queue);
    case WeightFormat::kInt3: return Pack<WeightFormat::kInt3>(args, queue);
    case WeightFormat::kInt8: return Pack<WeightFormat::kInt8>(args, queue);
    case WeightFormat::kMxfp4Planar: return Pack<WeightFormat::kMxfp4Planar>(args, queue);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bellhop::kernels
