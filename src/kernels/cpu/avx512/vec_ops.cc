#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx512 {
namespace {
#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/vec_ops_body.inc"
}  // namespace

extern constinit const VecOps kVecOps = MakeTable("avx512", sys::Isa::kAvx512);

}  // namespace bellhop::kernels::avx512
