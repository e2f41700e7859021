// Codebook formats.
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx2/codes.h"
#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/cpu/grids.h"
#include "kernels/dot.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx2 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/dot_body.inc"

#include "kernels/cpu/dot_many_body.inc"

#include "kernels/cpu/codebook_sources_body.inc"

#include "kernels/cpu/avx2/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

#include "kernels/cpu/avx2/few_codebook_steps_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx2

namespace bellhop::kernels {

#define BELLHOP_DOT_OF(format_name, format) \
  void dot_##format_name##_f32_f32_avx2(const DotArgs& args) noexcept { avx2::Dot<quant::WeightFormat::format>(args); }
BELLHOP_DOT_OF(iq2_xxs, kIQ2XXS)
BELLHOP_DOT_OF(iq2_xs, kIQ2XS)
BELLHOP_DOT_OF(iq2_s, kIQ2S)
BELLHOP_DOT_OF(iq3_xxs, kIQ3XXS)
BELLHOP_DOT_OF(iq3_s, kIQ3S)
BELLHOP_DOT_OF(iq1_s, kIQ1S)
BELLHOP_DOT_OF(iq1_m, kIQ1M)

}  // namespace bellhop::kernels
