#include "kernels/dot.h"

namespace bellhop::kernels {

#define BELLHOP_DOT(name, isa, format) void name(const DotArgs& args) noexcept;
#include "kernels/dot.def"
#undef BELLHOP_DOT
#define BELLHOP_PLANAR(dot, decode, isa, format) void dot(const DotArgs& args) noexcept;
#include "kernels/planar.def"
#undef BELLHOP_PLANAR

namespace {

constexpr DotKernel kDotKernels[] = {
#define BELLHOP_DOT(name, isa, format) {#name, sys::Isa::isa, quant::WeightFormat::format, name},
#include "kernels/dot.def"
#undef BELLHOP_DOT
#define BELLHOP_PLANAR(dot, decode, isa, format) {#dot, sys::Isa::isa, quant::WeightFormat::format, dot},
#include "kernels/planar.def"
#undef BELLHOP_PLANAR
};

}  // namespace

std::span<const DotKernel> AllDotKernels() { return kDotKernels; }

const DotKernel* SelectDot(quant::WeightFormat format, const sys::CpuCaps& caps) {
  const DotKernel* best = nullptr;
  for (const DotKernel& kernel : kDotKernels) {
    if (kernel.format != format || kernel.isa > caps.isa) continue;
    if (best == nullptr || kernel.isa > best->isa) best = &kernel;
  }
  return best;
}

}  // namespace bellhop::kernels
