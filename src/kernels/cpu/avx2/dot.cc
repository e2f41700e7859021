// Plain formats and those of small blocks.
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx2/codes.h"
#include "kernels/cpu/avx2/f32x16.h"
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

#include "kernels/cpu/avx2/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

#include "kernels/cpu/avx2/nibble_lookup_body.inc"

#include "kernels/cpu/avx2/nibble_sources_body.inc"

template <>
struct SourceOf<quant::WeightFormat::kQ8_0> {
  using Type = ByteSource<32, 32, false, quant::Q8_0Block::kQs, 2>;
};

#include "kernels/cpu/avx2/few_block_steps_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx2

namespace bellhop::kernels {

#define BELLHOP_DOT_OF(format_name, format) \
  void dot_##format_name##_f32_f32_avx2(const DotArgs& args) noexcept { avx2::Dot<quant::WeightFormat::format>(args); }
BELLHOP_DOT_OF(f32, kF32)
BELLHOP_DOT_OF(f16, kF16)
BELLHOP_DOT_OF(bf16, kBF16)
BELLHOP_DOT_OF(q4_0, kQ4_0)
BELLHOP_DOT_OF(q4_1, kQ4_1)
BELLHOP_DOT_OF(q5_0, kQ5_0)
BELLHOP_DOT_OF(q5_1, kQ5_1)
BELLHOP_DOT_OF(q8_0, kQ8_0)
BELLHOP_DOT_OF(iq4_nl, kIQ4NL)
BELLHOP_DOT_OF(mxfp4, kMXFP4)
BELLHOP_DOT_OF(nvfp4, kNVFP4)
BELLHOP_DOT_OF(q1_0, kQ1_0)
BELLHOP_DOT_OF(q2_0, kQ2_0)

}  // namespace bellhop::kernels
