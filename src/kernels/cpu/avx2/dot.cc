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

// 16 registers, two per F32x16: 4 sums.
constexpr int RowsAtOnce(int x_rows) { return 4 / x_rows; }

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/dot_body.inc"

template <>
struct SourceOf<quant::WeightFormat::kQ8_0> {
  using Type = ByteSource<32, 32, false, quant::Q8_0Block::kQs, 2>;
};

}  // namespace
}  // namespace bellhop::kernels::avx2

namespace bellhop::kernels {

#define BELLHOP_DEFINE_kReference(name, format)
#define BELLHOP_DEFINE_kAvx2(name, format) \
  void name(const DotArgs& args) noexcept { avx2::Dot<quant::WeightFormat::format>(args); }
#define BELLHOP_DEFINE_kAvx512(name, format)
#define BELLHOP_DOT(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/dot.def"

}  // namespace bellhop::kernels
