// The kernels of a prompt's chunk: any number of rows, all of ONE sequence and at consecutive positions. Numerics class
// prompt: what a matrix reads is rounded to bf16, weights enter exactly (f32 ones to 16 bits), sums and the residual
// are f32. A result depends on its own row alone: the same bits whatever the chunk's bounds are. CUDA builds alone.
//
// Here TermRows have one term, element e of a row is at PromptPosition(e), and their sums are those of the rounded
// numbers. Strides are multiples of kTermPadding; columns behind a row are zeros, which the kernels write.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch_queue.h"
#include "kernels/block_decode.h"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {

// How rows are multiplied; fixed for a device when a model is made.
enum class PromptMath : uint8_t {
  kMma,    // mma.sync, everywhere
  kWgmma,  // sm_90a; kMma for what has no tiles
};
struct PromptDevice {
  PromptMath math = PromptMath::kMma;
  int32_t multiprocessors = 0;  // kWgmma
};
// For the current device.
cudaError_t ChoosePromptMath(PromptDevice* device);
constexpr const char* PromptMathName(PromptMath math) { return math == PromptMath::kWgmma ? "wgmma" : "mma.sync"; }

// x = values * norm / rms, rounded.
struct PromptNormArgs {
  const float* values = nullptr;  // [rows][hidden], 16-byte aligned
  const float* norm = nullptr;    // [hidden]; null: values as they are
  float epsilon = 0;
  int32_t rows = 0, hidden = 0;  // hidden: a multiple of 4
  TermRows x;
  float* inverse_rms = nullptr;  // [rows], for the router; null: not wanted
};
cudaError_t LaunchPromptNorm(const PromptNormArgs& args, const cuda::LaunchQueue& queue);

// y = (W x) * scale + bias.
struct PromptGemmArgs {
  DeviceMatrix matrix;
  TermRows x;
  int32_t rows = 0;
  Codebooks books;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool adds = false;  // y += port_scale * what would be stored
  float port_scale = 1;
  PromptDevice device;
};
cudaError_t LaunchPromptGemm(const PromptGemmArgs& args, const cuda::LaunchQueue& queue);

// File rows to tiles of f16 (rounded), for matrices that are read by many chunks' rows: faster than reading them as
// they are. to: DeviceMatrixBytes(kF16, rows, cols, 0), aligned to 16; `result` is `from` as those tiles.
cudaError_t LaunchDecodeTiles(const DeviceMatrix& from, const Codebooks& books, uint8_t* to, DeviceMatrix* result,
                              const cuda::LaunchQueue& queue);

// Scores and selection are those of a decode step, in f32; misses are marked, and nobody is asked for them.
struct PromptRouterArgs {
  // Of `router`: the layer, weights, selection, x.values, x.norm, x.hidden, logits, expert_to_slot, and ids, weights,
  // slots and shared_weights of the routes.
  RouterArgs router;
  int32_t rows = 0;
  const float* inverse_rms = nullptr;  // [rows], PromptNormArgs
  // [1], raised to ~m by each row m that has a weight that is no number: from zero, to that of the first such row.
  // Their routes are dropped.
  uint32_t* bad_row = nullptr;
};
cudaError_t LaunchPromptRouter(const PromptRouterArgs& args, const cuda::LaunchQueue& queue);

// Rows that one tile of products takes, at most: the fewer tiles, the less weights are decoded.
inline constexpr int32_t kPromptTileRows = 64;
constexpr int32_t PromptTileRows(PromptMath math) { return math == PromptMath::kWgmma ? 192 : kPromptTileRows; }

// Rows are cut into as few tiles as hold them, of about the same size: this many each, the last one what is left.
constexpr int32_t EvenTileRows(int32_t rows, int32_t tiles) {
  const int32_t each = (rows + tiles - 1) / tiles;
  return (each + 7) / 8 * 8;
}

// Routes of a chunk by expert.
struct PromptRoutes {
  const int32_t* ids = nullptr;    // [rows * used], distinct ones of each row
  const int32_t* slots = nullptr;  // [rows * used], negative: nobody's here
  const float* weights = nullptr;  // [rows * used]
  int32_t* order = nullptr;        // [rows * used]: routes that have a slot, by expert, then by number
  ExpertGroup* tiles = nullptr;    // [PromptTiles()]: up to tile_rows of `order` each, of one expert
  int32_t* tile_count = nullptr;   // [1]
  int32_t tile_rows = kPromptTileRows;
};
constexpr int32_t PromptTiles(int64_t routes, int32_t experts, int32_t tile_rows = kPromptTileRows) {
  const int64_t full = routes / tile_rows;
  return static_cast<int32_t>(full + (routes - full < experts ? routes - full : experts));
}

// Rows that one block of the sort takes.
inline constexpr int32_t kPromptSortRows = 128;
constexpr int32_t PromptSortSpans(int32_t rows) { return (rows + kPromptSortRows - 1) / kPromptSortRows; }

struct PromptSortArgs {
  PromptRoutes routes;
  int32_t rows = 0, used = 0, experts = 0;  // experts <= kMaxPromptExperts
  int32_t* offsets = nullptr;               // [experts + 1], where each expert's routes begin in `order`
  int32_t* span_counts = nullptr;           // [PromptSortSpans() + 1][experts], scratch
  uint32_t* route_counts = nullptr;         // [experts], += routes of each, misses too; null: not wanted
  // [2], += experts that have routes: those with a slot below first_staging, and others; null: not wanted.
  uint64_t* distinct = nullptr;
  int32_t first_staging = INT32_MAX;
};
inline constexpr int32_t kMaxPromptExperts = 1024;
cudaError_t LaunchPromptSort(const PromptSortArgs& args, const cuda::LaunchQueue& queue);

struct PromptExpertArgs {
  ExpertBank bank;  // staging slots hold whole experts: staged_inner is not read
  int32_t rows = 0, used = 1, experts = 0;
  bool all_rows = false;  // a dense or shared feed-forward part: used = 1, slot 0, no routes
  PromptRoutes routes;
  // Fc1 and fc2 of routes to these slots alone: hits and each wave of misses have launches of their own. Not of
  // all_rows.
  int32_t first_slot = 0, end_slot = INT32_MAX;
  Codebooks books;
  TermRows x;
  TermRows hidden;  // [rows * used], by place in `order`: between fc1 and fc2
  DeviceActivation activation = DeviceActivation::kSwiGlu;
  float alpha = 1, beta = 0, limit = 0;  // limit 0: none
  float* partial = nullptr;              // [rows * used][width]: fc2's results, by route; not of all_rows
  // residual += port_scale * the sum over a row's routes in their order, then port_scale * misses.
  float* residual = nullptr;  // [rows][width]
  float port_scale = 1;
  const float* shared_weights = nullptr;  // [rows], all_rows: factors on a row's result; null: 1
  const float* misses = nullptr;          // [rows][width], device memory; null: none
  PromptDevice device;
};
cudaError_t LaunchPromptFc1(const PromptExpertArgs& args, const cuda::LaunchQueue& queue);
// all_rows: adds to the residual at once, and there is nothing to combine.
cudaError_t LaunchPromptFc2(const PromptExpertArgs& args, const cuda::LaunchQueue& queue);
cudaError_t LaunchPromptCombine(const PromptExpertArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
