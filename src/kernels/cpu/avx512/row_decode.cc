#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx512 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/row_decode_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

#define BELLHOP_DEFINE_kReference(name, format)
#define BELLHOP_DEFINE_kAvx2(name, format)
#define BELLHOP_DEFINE_kAvx512(name, format)                            \
  void name(const std::byte* src, int64_t count, float* dst) noexcept { \
    avx512::DecodeRow<quant::WeightFormat::format>(src, count, dst);    \
  }
#define BELLHOP_ROW_DECODE(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/row_decode.def"

}  // namespace bellhop::kernels
