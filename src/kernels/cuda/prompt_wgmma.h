// Products of a prompt's rows for Hopper (sm_90a): the same results contract, arguments and tiles as the kernel of
// prompt_gemm.h, another order of sums. CUDA builds alone.
#pragma once

#include "kernels/cuda/prompt_gemm.h"

namespace bellhop::kernels {

inline constexpr int kWgmmaMaxRows = PromptTileRows(PromptMath::kWgmma);  // of one tile

// Rows of a tile as the kernel computes them: the next of these. More kinds waste less and are more code.
inline constexpr int kWgmmaWidths[] = {16, 32, 48, 64, 96, 128, 144, 160, 168, 192};
constexpr int WgmmaWidth(int rows) {
  for (const int width : kWgmmaWidths) {
    if (rows <= width) return width;
  }
  return kWgmmaMaxRows;
}

// Rows of a tile where all rows meet one matrix, so that all multiprocessors have about as much to do. blocks: that
// share the matrix' rows.
int32_t WgmmaTileRows(int32_t rows, int32_t blocks, int32_t multiprocessors);

// Matrices in tiles; of one format, if there are two. cudaErrorInvalidValue for tiles without a kernel.
cudaError_t LaunchWgmmaProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);

// Sums of 32 elements of each row as two bf16 terms: x.group_sums of x.sums, what formats with minima read.
cudaError_t LaunchGroupSums(const TermRows& x, int64_t rows, const cuda::LaunchQueue& queue);

namespace prompt_wgmma {
// Each in a source of its own, which the build makes.
template <typename Format>
cudaError_t LaunchAs(const PromptProduct& p, const cuda::LaunchQueue& queue);
}  // namespace prompt_wgmma

}  // namespace bellhop::kernels
