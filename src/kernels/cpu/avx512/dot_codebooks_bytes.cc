// Codebook formats, for CPUs with CpuCaps::avx512_bytes.
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/grids.h"
#include "kernels/dot.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx512 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/dot_body.inc"

#include "kernels/cpu/dot_many_body.inc"

#include "kernels/cpu/avx512/codebook_bytes_sources_body.inc"

#include "kernels/cpu/avx512/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

#include "kernels/cpu/avx512/few_staged_body.inc"

BELLHOP_STAGED_FEW_ROWS(kIQ2XXS);
BELLHOP_STAGED_FEW_ROWS(kIQ2XS);
BELLHOP_STAGED_FEW_ROWS(kIQ2S);
BELLHOP_STAGED_FEW_ROWS(kIQ3XXS);
BELLHOP_STAGED_FEW_ROWS(kIQ3S);
BELLHOP_STAGED_FEW_ROWS(kIQ1S);
BELLHOP_STAGED_FEW_ROWS(kIQ1M);

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

#define BELLHOP_DOT_OF(format_name, format)                                     \
  void dot_##format_name##_f32_f32_avx512_bytes(const DotArgs& args) noexcept { \
    avx512::Dot<quant::WeightFormat::format>(args);                             \
  }
BELLHOP_DOT_OF(iq2_xxs, kIQ2XXS)
BELLHOP_DOT_OF(iq2_xs, kIQ2XS)
BELLHOP_DOT_OF(iq2_s, kIQ2S)
BELLHOP_DOT_OF(iq3_xxs, kIQ3XXS)
BELLHOP_DOT_OF(iq3_s, kIQ3S)
BELLHOP_DOT_OF(iq1_s, kIQ1S)
BELLHOP_DOT_OF(iq1_m, kIQ1M)

}  // namespace bellhop::kernels
