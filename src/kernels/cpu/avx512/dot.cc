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
constexpr int RowsAtOnce(int) { return 4; }

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/dot_body.inc"

template <>
struct SourceOf<quant::WeightFormat::kQ8_0> {
  using Type = ByteSource<32, 32, false, quant::Q8_0Block::kQs, 2>;
};

// Nibble formats: decoding in registers costs one widening load per 16 bytes, one permute per vector and a shift for
// the high nibbles, less than making bytes first.
alignas(16) inline constexpr int8_t kUnsignedNibbles[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
alignas(16) inline constexpr int8_t kSignedNibbles[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

// 16 bytes: low nibbles are elements 0 to 15, high ones 16 to 31; kCount of these in a block.
template <const int8_t (&kValues)[16], typename Block, int kCount = 1>
struct NibbleSource {
  static constexpr int kGroup = 32, kVectors = 2, kLoadBytes = 16, kLoads = kCount;
  static constexpr int kOffset = Block::kQs, kGap = Block::kBytes - 16 * kCount;
  NibbleTable table = LoadNibbleTable(kValues);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    const __m512i bytes = WidenBytes(p);
    code[0] = FromNibble(table, bytes);
    code[1] = FromNibble(table, _mm512_srli_epi32(bytes, 4));
  }
};

// Q4_K: 32 bytes, low nibbles are one group and high nibbles the next.
struct NibblePairSource {
  using Block = quant::Q4KBlock;
  static constexpr int kGroup = 32, kVectors = 4, kLoadBytes = 32, kLoads = 4;
  static constexpr int kOffset = Block::kQs, kGap = Block::kBytes - 128;
  NibbleTable table = LoadNibbleTable(kUnsignedNibbles);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    const __m512i first = WidenBytes(p), second = WidenBytes(p + 16);
    code[0] = FromNibble(table, first);
    code[1] = FromNibble(table, second);
    code[2] = FromNibble(table, _mm512_srli_epi32(first, 4));
    code[3] = FromNibble(table, _mm512_srli_epi32(second, 4));
  }
};

// NVFP4: 8 bytes, low nibbles are elements 0 to 7 of a group of 16, high ones 8 to 15.
struct HalfNibbleSource {
  using Block = quant::Nvfp4Block;
  static constexpr int kGroup = 16, kVectors = 1, kLoadBytes = 8, kLoads = 4;
  static constexpr int kOffset = Block::kQs, kGap = Block::kBytes - 32;
  NibbleTable table = LoadNibbleTable(quant::kFp4Values);
  __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_set1_epi64x(LoadAs<int64_t>(p)));
    code[0] = FromNibble(table, _mm512_srlv_epi32(bytes, shift));
  }
};

template <>
struct SourceOf<quant::WeightFormat::kQ4_0> {
  using Type = NibbleSource<kSignedNibbles, quant::Q4_0Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kQ4_1> {
  using Type = NibbleSource<kUnsignedNibbles, quant::Q4_1Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kIQ4NL> {
  using Type = NibbleSource<quant::kIq4Values, quant::Q4_0Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kMXFP4> {
  using Type = NibbleSource<quant::kFp4Values, quant::Mxfp4Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kIQ4XS> {
  using Type = NibbleSource<quant::kIq4Values, quant::Iq4xsBlock, 8>;
};
template <>
struct SourceOf<quant::WeightFormat::kQ4K> {
  using Type = NibblePairSource;
};
template <>
struct SourceOf<quant::WeightFormat::kNVFP4> {
  using Type = HalfNibbleSource;
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
