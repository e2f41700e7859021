#include "kernels/attention.h"

#include "kernels/cpu/attention_isa.h"

namespace bellhop::kernels {

std::span<const AttentionKernel> AllAttentionKernels() {
  static const AttentionKernel kernels[] = {ref::kAttention, avx2::kAttention, avx512::kAttention};
  return kernels;
}

const AttentionKernel* SelectAttention(const sys::CpuCaps& caps) {
  const AttentionKernel* best = nullptr;
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    if (kernel.isa <= caps.isa) best = &kernel;
  }
  return best;
}

}  // namespace bellhop::kernels
