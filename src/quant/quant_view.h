// A matrix of quantised weights where it lies: up to four planes (codes, scales, zero points, global scale).
// Packed GGUF blocks use plane 0 alone. Trivially copyable; works on host and device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace bellhop::quant {

struct QuantPlane {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;  // from one row to the next
};

inline constexpr int kMaxPlanes = 4;

// Rows are output features, columns the input axis: y[r] = sum_c W[r][c] * x[c].
struct QuantView {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  QuantPlane planes[kMaxPlanes];

  const std::byte* Row(int64_t r) const { return planes[0].data + r * planes[0].row_bytes; }
};

}  // namespace bellhop::quant
