// The tables that each ISA's translation unit defines. They are constant-initialised: no code of an ISA runs before
// a caller that checked the CPU calls it.
#pragma once

#include "kernels/vec_ops.h"

namespace bellhop::kernels {
namespace ref {
extern const VecOps kVecOps;
}
namespace avx2 {
extern const VecOps kVecOps;
}
namespace avx512 {
extern const VecOps kVecOps;
}
}  // namespace bellhop::kernels
