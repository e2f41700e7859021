#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx2/codes.h"
#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx2 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/row_decode_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx2

namespace bellhop::kernels {

#define BELLHOP_DEFINE_kReference(name, format)
#define BELLHOP_DEFINE_kAvx512(name, format)
#define BELLHOP_DEFINE_kAvx2(name, format)                              \
  void name(const std::byte* src, int64_t count, float* dst) noexcept { \
    avx2::DecodeRow<quant::WeightFormat::format>(src, count, dst);      \
  }
#define BELLHOP_ROW_DECODE(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/row_decode.def"

}  // namespace bellhop::kernels
