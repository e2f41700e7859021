#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx2 {
namespace {
#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/vec_ops_body.inc"
}  // namespace

extern constinit const VecOps kVecOps = MakeTable("avx2", sys::Isa::kAvx2);

}  // namespace bellhop::kernels::avx2
