#include "kernels/gemm.h"

namespace bellhop::kernels {

#define BELLHOP_GEMM(name, isa)                                                                                 \
  void name##_pack(MatView<const float> x, const int32_t* rows, RowRange range, std::byte* packed) noexcept;    \
  void name##_pack_transposed(MatView<const float> ht, int64_t k_begin, int64_t k, std::byte* packed) noexcept; \
  void name##_fill_tile(const FillArgs& args) noexcept;                                                         \
  void name##_multiply(const GemmArgs& args) noexcept;                                                          \
  void name##_fill_multiply(const FillArgs* parts, int count, const GemmArgs& args) noexcept;                   \
  void name##_transpose_store(const TransposeArgs& args) noexcept;
#include "kernels/gemm.def"
#undef BELLHOP_GEMM
#define BELLHOP_ROW_DECODE(name, isa, format) void name(const std::byte* src, int64_t count, float* dst) noexcept;
#include "kernels/row_decode.def"
#undef BELLHOP_ROW_DECODE
#define BELLHOP_PLANAR(dot, decode, isa, format) \
  void decode(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count, float* dst) noexcept;
#include "kernels/planar.def"
#undef BELLHOP_PLANAR

namespace {

constexpr GemmKernel kGemmKernels[] = {
#define BELLHOP_GEMM(name, isa)                                                                            \
  {#name,           sys::Isa::isa,        name##_pack,           name##_pack_transposed, name##_fill_tile, \
   name##_multiply, name##_fill_multiply, name##_transpose_store},
#include "kernels/gemm.def"
#undef BELLHOP_GEMM
};

constexpr RowDecodeKernel kRowDecodeKernels[] = {
#define BELLHOP_ROW_DECODE(name, isa, format) {#name, sys::Isa::isa, quant::WeightFormat::format, name},
#include "kernels/row_decode.def"
#undef BELLHOP_ROW_DECODE
#define BELLHOP_PLANAR(dot, decode, isa, format) {#decode, sys::Isa::isa, quant::WeightFormat::format, nullptr, decode},
#include "kernels/planar.def"
#undef BELLHOP_PLANAR
};

}  // namespace

std::span<const GemmKernel> AllGemmKernels() { return kGemmKernels; }

const GemmKernel* SelectGemm(const sys::CpuCaps& caps) {
  const GemmKernel* best = nullptr;
  for (const GemmKernel& kernel : kGemmKernels) {
    if (kernel.isa > caps.isa) continue;
    if (best == nullptr || kernel.isa > best->isa) best = &kernel;
  }
  return best;
}

std::span<const RowDecodeKernel> AllRowDecodeKernels() { return kRowDecodeKernels; }

const RowDecodeKernel* SelectRowDecode(quant::WeightFormat format, const sys::CpuCaps& caps) {
  const RowDecodeKernel* best = nullptr;
  for (const RowDecodeKernel& kernel : kRowDecodeKernels) {
    if (kernel.format != format || kernel.isa > caps.isa) continue;
    if (best == nullptr || kernel.isa > best->isa) best = &kernel;
  }
  return best;
}

}  // namespace bellhop::kernels
