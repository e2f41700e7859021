// Dense matrices times one row: a block is one tile, eight warps have a class of its columns each. A ninth warp gets
// meanwhile what the results need besides the products, and finishes them.
#pragma once

#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/tile_row.cuh"

namespace bellhop::kernels {
namespace mat_vec_row {

constexpr int kThreads = (kRowClasses + 1) * 32;

// The ninth warp. Both halves of the warp do the same, one writes.
__device__ __forceinline__ void Finish(const MatVecArgs& args, int matrix, int tile, int lane,
                                       const float (&sums)[kRowClasses][kTileRows]) {
  const DeviceMatrix& w = args.matrices[matrix];
  const ResidualRows& residual = args.residual;
  const int r = lane % kTileRows, column = tile * kTileRows + r;
  const bool inside = column < w.rows;
  const float bias = w.bias != nullptr && inside ? w.bias[column] : 0.0f;
  const float next_norm = args.to_residual && column < residual.hidden ? residual.norm[column] : 0.0f;
  AwaitPrevious();
  // What follows q, k and v may use all that was there before this kernel as soon as it starts (FinishQkvArgs::
  // reads_ahead): it starts when every block has seen the end of the kernel before.
  if (!args.to_residual) LetNextStart();
  const bool row = *args.rows > 0, have = row && inside;
  const float before = args.to_residual && inside ? residual.values[column] : 0.0f;
  const float norm = RowScale(args.norm, 0, lane);
  __syncthreads();
  float value = AddClasses(sums, r) * norm * w.scale;
  if (w.bias != nullptr) value += bias;
  if (!args.to_residual) {
    if (have && lane < kTileRows) args.y[matrix][column] = args.divisor == 1 ? value : value / args.divisor;
    return;
  }
  value = have ? before + args.port_scale * value : 0.0f;
  WriteResidual(residual, 0, column, value, next_norm, row && lane < kTileRows);
}

// kChunks, kMore: as in RowPart.
template <typename Format, int kTerms, int kChunks, bool kMore>
__global__ void __launch_bounds__(kThreads, kSmallChunks<Format>&& kChunks <= 2 ? 3 : 2)
    MatVecRowKernel(MatVecArgs args) {
  __shared__ float sums[kRowClasses][kTileRows];
  __shared__ typename Format::Tables tables;
  if (args.to_residual) LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int matrix = 0, tile = static_cast<int>(blockIdx.x);
  while (tile >= args.matrices[matrix].tiles()) tile -= args.matrices[matrix++].tiles();
  if constexpr (kHasTables<Format>) {
    tables.Fill(args.books.iq3xxs_grid);
    __syncthreads();
  }
  if (warp == kRowClasses) {
    Finish(args, matrix, tile, lane, sums);
    return;
  }
  const DeviceMatrix& w = args.matrices[matrix];
  const int chunks = w.chunks;
  const uint8_t* const data = w.data + int64_t{tile} * chunks * Tiles(Format::kFormat).chunk_bytes;
  const RowColumn x = PointRow<kTerms>(args.x, 0, lane);
  RowPart<Format, kTerms, kRowClasses, kChunks, kMore> own(data, chunks, warp, lane);
  AwaitPrevious();
  float acc[4] = {};
  own.Multiply(x, tables, acc);
  StoreRow<kTerms>(acc, lane, sums[warp]);
  __syncthreads();
}

template <typename Format, int kTerms, int kChunks, bool kMore>
cudaError_t LaunchWith(const MatVecArgs& args, const cuda::LaunchQueue& queue) {
  uint64_t bytes = 0;
  unsigned tiles = 0;
  for (int i = 0; i < args.count; ++i) {
    const DeviceMatrix& w = args.matrices[i];
    bytes += DeviceMatrixBytes(w.format, w.rows, w.cols, w.row_bytes);
    tiles += static_cast<unsigned>(w.tiles());
  }
  return cuda::Launch(queue, {.name = "dense matrices", .bytes = bytes},
                      {.grid = dim3(tiles), .block = dim3(kThreads), .overlap = true},
                      MatVecRowKernel<Format, kTerms, kChunks, kMore>, args);
}

template <typename Format, int kTerms>
cudaError_t LaunchAs(const MatVecArgs& args, const cuda::LaunchQueue& queue) {
  constexpr int kFew = kRowChunks<Format>;
  // A class's chunks; all matrices have the same columns.
  const int own = (args.matrices[0].chunks + kRowClasses - 1) / kRowClasses;
  if (own <= kFew) return LaunchWith<Format, kTerms, kFew, false>(args, queue);
  if constexpr (kSmallChunks<Format>) {
    if (own <= 2 * kFew) return LaunchWith<Format, kTerms, 2 * kFew, false>(args, queue);
    return LaunchWith<Format, kTerms, 2 * kFew, true>(args, queue);
  } else {
    return LaunchWith<Format, kTerms, kFew, true>(args, queue);
  }
}

}  // namespace mat_vec_row
}  // namespace bellhop::kernels
