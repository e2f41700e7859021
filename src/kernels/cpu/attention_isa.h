// The attention kernels that each ISA's translation unit defines; constant-initialised like vec_ops_isa.h.
#pragma once

#include "kernels/attention.h"

namespace bellhop::kernels {
namespace ref {
extern const AttentionKernel kAttention;
}
namespace avx2 {
extern const AttentionKernel kAttention;
}
namespace avx512 {
extern const AttentionKernel kAttention;
}
}  // namespace bellhop::kernels
