// A matrix of quantised weights where it lies. Packed GGUF blocks are one plane; the planar formats of ONNX models have
// codes, scales and perhaps zero points apart (quant/planar.h, docs/formats.md). Trivially copyable; works on host and
// device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace bellhop::quant {

struct QuantPlane {
  const std::byte* data = nullptr;
  // From one row to the next. SM80 codes: the mean over a tile of rows. K-major codes: from one column to the next.
  int64_t row_bytes = 0;
};

inline constexpr int kMaxPlanes = 4;
inline constexpr int kCodesPlane = 0;       // GGUF blocks, or the codes of a planar format
inline constexpr int kScalesPlane = 1;      // [rows][groups]
inline constexpr int kZeroPointsPlane = 2;  // [rows][groups], packed like raw codes; data null: the implicit zero point

// What a scale plane holds.
enum class ScaleType : uint8_t { kNone, kF16, kBF16, kF32, kE8M0, kE4M3 };

// Rows are output features, columns the input axis: y[r] = sum_c W[r][c] * x[c].
struct QuantView {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  QuantPlane planes[kMaxPlanes];

  // Planar formats alone.
  ScaleType scale_type = ScaleType::kNone;
  int32_t group = 0;        // columns per scale; the last group may be partial; group >= cols: one scale per row
  int64_t first_group = 0;  // scale and zero-point index of column 0: not 0 in a column slice
  float global_scale = 1;   // multiplies a finished dot product, and a decoded value after its scale

  // GGUF formats, and planar ones whose rows are contiguous (not the SM80 and K-major layouts).
  const std::byte* Row(int64_t r) const { return planes[0].data + r * planes[0].row_bytes; }
};

}  // namespace bellhop::quant
