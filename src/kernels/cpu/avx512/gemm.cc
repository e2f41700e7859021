#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"

namespace bellhop::kernels::avx512 {
namespace {

// 32 registers: 16 sums, four weight vectors, x; two loads per four products keep both FMA units busy.
inline constexpr int kTileW = 4;
inline constexpr int kTileX = 4;

#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

void gemm_f32_f32_f32_avx512(const GemmArgs& args) noexcept { avx512::Gemm(args); }

}  // namespace bellhop::kernels
