// Decode-class matrix-vector products: exact weights, f32 activations, canonical lane order (lanes.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/span.h"
#include "quant/quant_view.h"
#include "sys/cpu_features.h"

namespace bellhop::kernels {

// y(m, r) = dot(weights row r, x row m) for r in `range`, m in [0, x.rows).
//   weights [rows, k]; x [m, k] f32; y [m, rows] f32: column r of y belongs to weight row r.
// Any number of x rows; each result depends on its own row alone. k = weights.cols is whole blocks.
struct DotArgs {
  quant::QuantView weights;
  MatView<const float> x;
  MatView<float> y;
  RowRange range;
  // What the caller reads after this call (its first code bytes; null: unknown); the last tile prefetches it.
  const std::byte* next = nullptr;
  // x once more, as PackRow leaves its rows, at a multiple of 64 bytes; null: kernels pack what they need in each call.
  const float* packed_x = nullptr;
};

// From this many rows of x on, kernels take packed ones. Where many calls share x, packing it once is cheaper.
inline constexpr int64_t kPackedXRows = 5;
// packed[column / 16][row][column % 16], `rows` rows: row `row` from x; where `cols` ends within sixteen, the rest is
// -0.
void PackRow(const float* x, int64_t cols, int64_t row, int64_t rows, float* packed);

using DotFn = void (*)(const DotArgs& args) noexcept;

struct DotKernel {
  const char* name;
  sys::Isa isa;
  quant::WeightFormat format;
  DotFn fn;
  bool needs_bytes = false, needs_fast_gathers = false;  // of CpuCaps, beside the bundle
};

// Every kernel of the table (dot.def) that was compiled in.
std::span<const DotKernel> AllDotKernels();
bool CanRun(const DotKernel& kernel, const sys::CpuCaps& caps);
// The best kernel for the format that `caps` allows; null when the format holds no weights. Pure.
const DotKernel* SelectDot(quant::WeightFormat format, const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
