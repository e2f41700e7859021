// What the kernels of prompt products share, whatever they multiply with.
#pragma once

#include "cuda/launch.h"
#include "kernels/cuda/prompt_gemm.h"

namespace bellhop::kernels {
namespace prompt_gemm {

__device__ __forceinline__ float Of(const float* v, int64_t i, float otherwise) {
  return v == nullptr ? otherwise : v[i];
}

__device__ __forceinline__ const uint8_t* SlotOf(const PromptProduct& p, const DeviceMatrix& w, int64_t staged,
                                                 int slot) {
  if (slot < p.staging.first_slot) return w.data + slot * p.slot_bytes;
  return p.staging.base + staged + (slot - p.staging.first_slot) * p.staging.slot_bytes;
}

inline cuda::LaunchCost CostOf(const PromptProduct& p) {
  auto bytes = [](const DeviceMatrix& w) {
    return w.rows == 0 ? 0 : DeviceMatrixBytes(w.format, w.rows, w.cols, w.row_bytes);
  };
  const auto outputs = static_cast<uint64_t>(p.w.rows) * (p.activates ? 2 : 1);
  const uint64_t x_rows = static_cast<uint64_t>(p.rows) * static_cast<uint64_t>(p.used);
  return {.name = p.activates ? "prompt fc1" : "prompt product",
          .bytes = (bytes(p.w) + bytes(p.up)) * static_cast<uint64_t>(p.experts) +
                   x_rows * (static_cast<uint64_t>(p.x.stride) * 2 + static_cast<uint64_t>(p.w.rows) * 4),
          .flops = 2 * x_rows * outputs * static_cast<uint64_t>(p.w.cols)};
}

}  // namespace prompt_gemm
}  // namespace bellhop::kernels
