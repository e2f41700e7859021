#include "kernels/dot.h"

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

}  // namespace bellhop::kernels
