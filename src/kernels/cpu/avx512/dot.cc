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

// 32 registers: 16 sums at most, the rest for codes, products and sums of x.
inline constexpr int kRowsPerTile = 4;
inline constexpr int kMaxXBlock = 8;
constexpr int RowsAtOnce(int x_rows) { return x_rows <= 4 ? 4 : 2; }

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/dot_body.inc"

template <>
struct SourceOf<quant::WeightFormat::kQ8_0> {
  using Type = ByteSource<32, 32, false, quant::Q8_0Block::kQs, 2>;
};

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

#define BELLHOP_DEFINE_kReference(name, format)
#define BELLHOP_DEFINE_kAvx2(name, format)
#define BELLHOP_DEFINE_kAvx512(name, format) \
  void name(const DotArgs& args) noexcept { avx512::Dot<quant::WeightFormat::format>(args); }
#define BELLHOP_DOT(name, isa, format) BELLHOP_DEFINE_##isa(name, format)
#include "kernels/dot.def"

}  // namespace bellhop::kernels
