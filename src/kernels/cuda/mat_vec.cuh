// Dense matrices: a block is one tile of 16 output rows, its warps share the columns. The kernel alone, for the sources
// that instantiate it.
#pragma once

#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/tile_dispatch.cuh"

namespace bellhop::kernels {
namespace mat_vec {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

// Values for output rows of the tile, 16 lanes a batch row.
template <int kN, int kTerms>
__device__ __forceinline__ void Finish(const MatVecArgs& args, int matrix, int tile, int first_row, int rows,
                                       const float* sums, const float* norms) {
  using Sums = TileSums<kN, kTerms>;
  const DeviceMatrix& w = args.matrices[matrix];
  const int r = static_cast<int>(threadIdx.x) % kTileRows, column = tile * kTileRows + r;
  // Whole warps go through, for their shuffles.
  for (int local = static_cast<int>(threadIdx.x) / kTileRows; local < (Sums::kRows + 1) / 2 * 2;
       local += kThreads / kTileRows) {
    const int m = first_row + local;
    const bool have = local < Sums::kRows && m < rows && column < w.rows;
    float value = 0;
    if (have) {
      value = Sums::Read(sums, 0, kWarps, local, r) * norms[m] * w.scale;
      if (w.bias != nullptr) value += w.bias[column];
    }
    if (!args.to_residual) {
      if (have) args.y[matrix][m * args.y_stride + column] = args.divisor == 1 ? value : value / args.divisor;
      continue;
    }
    if (have) value = args.residual.values[int64_t{m} * args.residual.hidden + column] + args.port_scale * value;
    WriteResidual(args.residual, m, column, value, local < Sums::kRows && m < rows);
  }
}

template <typename Format, int kN, int kTerms>
__global__ void __launch_bounds__(kThreads, MinBlocks<Format>(kN)) MatVecKernel(MatVecArgs args) {
  using Sums = TileSums<kN, kTerms>;
  __shared__ float sums[Sums::Floats(kWarps)];
  __shared__ float norms[kMaxStepRows];
  __shared__ typename Format::Tables tables;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int matrix = 0, tile = static_cast<int>(blockIdx.x);
  while (tile >= args.matrices[matrix].tiles()) tile -= args.matrices[matrix++].tiles();
  const DeviceMatrix& w = args.matrices[matrix];

  TileWork<Format, kN> work;
  work.Prefetch(w, w.data, tile, warp, lane);
  tables.Fill(args.books.iq3xxs_grid);
  if (args.to_residual) LetNextStart();
  AwaitPrevious();
  if (!args.to_residual) LetNextStart();  // as in mat_vec_row.cuh
  const int rows = *args.rows;
  for (int m = warp; m < rows; m += kWarps) {
    const float scale = RowScale(args.norm, m, lane);
    if (lane == 0) norms[m] = scale;
  }
  __syncthreads();
  for (int first_row = 0; first_row < rows; first_row += Sums::kRows) {
    const auto x = PointColumns<kN, kTerms>(
        args.x, lane, [&](int i) { return i < Sums::kRows && first_row + i < rows ? first_row + i : -1; });
    float acc[kN][4] = {};
    if (first_row > 0) work.Prefetch(w, w.data, tile, warp, lane);
    work.Run(w, w.data, tile, warp, kWarps, tables, args.books, x, lane, acc);
    Sums::Store(acc, warp, lane, sums);
    __syncthreads();
    Finish<kN, kTerms>(args, matrix, tile, first_row, rows, sums, norms);
    __syncthreads();
  }
}

inline unsigned Blocks(const MatVecArgs& args) {
  unsigned blocks = 0;
  for (int i = 0; i < args.count; ++i) blocks += static_cast<unsigned>(args.matrices[i].tiles());
  return blocks;
}

template <typename Format, int kN, int kTerms>
cudaError_t LaunchAs(const MatVecArgs& args, const cuda::LaunchQueue& queue) {
  uint64_t bytes = 0;
  for (int i = 0; i < args.count; ++i) {
    const DeviceMatrix& w = args.matrices[i];
    bytes += DeviceMatrixBytes(w.format, w.rows, w.cols, w.row_bytes);
  }
  return cuda::Launch(queue, {.name = "dense matrices", .bytes = bytes},
                      {.grid = dim3(Blocks(args)), .block = dim3(kThreads), .overlap = true},
                      MatVecKernel<Format, kN, kTerms>, args);
}

}  // namespace mat_vec
}  // namespace bellhop::kernels
