#include <cstdint>
#include <utility>

#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/gemm.h"

namespace bellhop::kernels::avx2 {
namespace {

// 16 registers, two per F32x16: six sums, two weight vectors.
inline constexpr int kTileW = 2;
inline constexpr int kTileX = 3;

#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx2

namespace bellhop::kernels {

void gemm_f32_f32_f32_avx2(const GemmArgs& args) noexcept { avx2::Gemm(args); }

}  // namespace bellhop::kernels
