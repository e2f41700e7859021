#include "kernels/dot.h"

#include <algorithm>

#include "kernels/lanes.h"

namespace bellhop::kernels {

#define BELLHOP_DOT(name, isa, format) void name(const DotArgs& args) noexcept;
#define BELLHOP_DOT_BYTES(name, isa, format, gathers) BELLHOP_DOT(name, isa, format)
#include "kernels/dot.def"
#undef BELLHOP_DOT_BYTES
#undef BELLHOP_DOT
#define BELLHOP_PLANAR(dot, decode, isa, format) void dot(const DotArgs& args) noexcept;
#include "kernels/planar.def"
#undef BELLHOP_PLANAR

namespace {

constexpr DotKernel kDotKernels[] = {
#define BELLHOP_DOT(name, isa, format) {#name, sys::Isa::isa, quant::WeightFormat::format, name},
#define BELLHOP_DOT_BYTES(name, isa, format, gathers) \
  {#name, sys::Isa::isa, quant::WeightFormat::format, name, true, gathers},
#include "kernels/dot.def"
#undef BELLHOP_DOT_BYTES
#undef BELLHOP_DOT
#define BELLHOP_PLANAR(dot, decode, isa, format) {#dot, sys::Isa::isa, quant::WeightFormat::format, dot},
#include "kernels/planar.def"
#undef BELLHOP_PLANAR
};

}  // namespace

std::span<const DotKernel> AllDotKernels() { return kDotKernels; }

bool CanRun(const DotKernel& kernel, const sys::CpuCaps& caps) {
  return kernel.isa <= caps.isa && (!kernel.needs_bytes || caps.avx512_bytes) &&
         (!kernel.needs_fast_gathers || caps.fast_gathers);
}

const DotKernel* SelectDot(quant::WeightFormat format, const sys::CpuCaps& caps) {
  const DotKernel* best = nullptr;
  for (const DotKernel& kernel : kDotKernels) {
    if (kernel.format != format || !CanRun(kernel, caps)) continue;
    if (best == nullptr || kernel.isa > best->isa || (kernel.isa == best->isa && kernel.needs_bytes)) best = &kernel;
  }
  return best;
}

void PackRow(const float* x, int64_t cols, int64_t row, int64_t rows, float* packed) {
  packed += row * kLanes;
  for (int64_t e = 0; e < cols; e += kLanes, packed += rows * kLanes) {
    const int64_t n = std::min<int64_t>(cols - e, kLanes);
    std::copy_n(x + e, n, packed);
    std::fill(packed + n, packed + kLanes, -0.0f);
  }
}

}  // namespace bellhop::kernels
