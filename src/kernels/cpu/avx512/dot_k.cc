// Formats of 256-element blocks without codebooks.
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
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

#include "kernels/cpu/avx512/nibble_sources_body.inc"

#include "kernels/cpu/avx512/k_sources_body.inc"

#include "kernels/cpu/avx512/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

#include "kernels/cpu/avx512/few_k_steps_body.inc"

BELLHOP_FEW_ROWS(kQ2K);
BELLHOP_FEW_ROWS(kQ3K);
BELLHOP_FEW_ROWS(kQ4K);
BELLHOP_FEW_ROWS(kQ5K);
BELLHOP_FEW_ROWS(kQ6K);
BELLHOP_FEW_ROWS(kIQ4XS);

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

#define BELLHOP_DOT_OF(format_name, format)                               \
  void dot_##format_name##_f32_f32_avx512(const DotArgs& args) noexcept { \
    avx512::Dot<quant::WeightFormat::format>(args);                       \
  }
BELLHOP_DOT_OF(q2_k, kQ2K)
BELLHOP_DOT_OF(q3_k, kQ3K)
BELLHOP_DOT_OF(q4_k, kQ4K)
BELLHOP_DOT_OF(q5_k, kQ5K)
BELLHOP_DOT_OF(q6_k, kQ6K)
BELLHOP_DOT_OF(iq4_xs, kIQ4XS)
BELLHOP_DOT_OF(tq1_0, kTQ1_0)
BELLHOP_DOT_OF(tq2_0, kTQ2_0)

}  // namespace bellhop::kernels
