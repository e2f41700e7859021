// Prompt-class products: weights decoded to an f32 tile once, then used for many rows. Activations were rounded to
// bf16 by the caller. Same lane order as a plain format (lanes.h), so a row's result does not depend on the others.
#pragma once

#include <cstdint>
#include <span>

#include "base/span.h"
#include "quant/format.h"
#include "quant/quant_view.h"
#include "sys/cpu_features.h"

namespace bellhop::kernels {

// y(m, r) = dot(w row r, x row m): w [n, k] f32 tile, x [m, k] f32, y [m, n] f32.
struct GemmArgs {
  MatView<const float> w;
  MatView<const float> x;
  MatView<float> y;
};
using GemmFn = void (*)(const GemmArgs& args) noexcept;
struct GemmKernel {
  const char* name;
  sys::Isa isa;
  GemmFn fn;
};
std::span<const GemmKernel> AllGemmKernels();
const GemmKernel* SelectGemm(const sys::CpuCaps& caps);

// Decodes `count` elements (whole blocks) to f32: the same values as quant::DecodeRow (compared with ==).
using RowDecodeFn = void (*)(const std::byte* src, int64_t count, float* dst) noexcept;
// The same for a row whose bytes are not contiguous (planar formats): columns [begin, begin + count) of row `row`,
// without the matrix's global scale. `begin` is a multiple of 128; `count` is one too, or reaches the last column.
using SliceDecodeFn = void (*)(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count,
                               float* dst) noexcept;
struct RowDecodeKernel {
  const char* name;
  sys::Isa isa;
  quant::WeightFormat format;
  RowDecodeFn fn;                 // null for planar formats
  SliceDecodeFn slice = nullptr;  // planar formats alone
};
std::span<const RowDecodeKernel> AllRowDecodeKernels();
const RowDecodeKernel* SelectRowDecode(quant::WeightFormat format, const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
