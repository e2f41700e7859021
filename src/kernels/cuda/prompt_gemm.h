// The one kernel behind all matrix products of a prompt. What calls it is in prompt_step.h. CUDA builds alone.
#pragma once

#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {

// Rows of x times one matrix, or times two whose results meet in an activation.
struct PromptProduct {
  DeviceMatrix w, up;      // up.rows 0: one matrix. Biases and scales of `w` and `up` apply.
  bool activates = false;  // w is the gate
  TermRows x;
  int32_t rows = 0;
  Codebooks books;

  // Experts: blocks take the tiles of the list instead of rows.
  const ExpertGroup* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* order = nullptr;
  int32_t max_tiles = 0;
  int32_t tile_rows = kPromptTileRows;           // of one tile, at most
  int32_t first_slot = 0, end_slot = INT32_MAX;  // tiles of other slots are left alone
  int32_t experts = 1;                           // for the declared bytes
  int32_t used = 1;
  bool gathers = false;   // x by row; else by place in `order`
  bool scatters = false;  // results by route; else by place
  int64_t slot_bytes = 0;
  StagingBank staging;
  int64_t w_staged = 0, up_staged = 0;  // offsets in a staging slot
  const float *w_bias = nullptr, *up_bias = nullptr, *w_factor = nullptr, *up_factor = nullptr;  // by expert

  float* y = nullptr;
  int64_t y_stride = 0;
  bool adds = false;
  float port_scale = 1;
  const float* row_factors = nullptr;
  TermRows hidden;  // activates
  DeviceActivation activation = DeviceActivation::kSwiGlu;
  float alpha = 1, beta = 0, limit = 0;
  PromptDevice device;
};

cudaError_t LaunchPromptProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);

// By format, each in the source that compiles it; cudaErrorInvalidValue for others.
cudaError_t LaunchSimpleProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);
cudaError_t LaunchKProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);
cudaError_t LaunchPlainProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);
// Any format and layout, or two.
cudaError_t LaunchAnyProduct(const PromptProduct& p, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
