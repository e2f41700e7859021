// Plain formats and those of small blocks.
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

#include "kernels/cpu/avx512/paired_scales_body.inc"

template <>
struct SourceOf<quant::WeightFormat::kQ8_0> {
  using Type = ByteSource<32, 32, false, quant::Q8_0Block::kQs, 2>;
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

// Nibbles with a fifth bit, of element i in bit i of the word before them: a permute of 32 entries.
template <const int8_t (&kLow)[16], typename Block>
struct FiveBitSource {
  static constexpr int kGroup = 32, kVectors = 2, kLoadBytes = 16, kLoads = 1;
  static constexpr int kOffset = Block::kQs, kGap = Block::kBytes - 16;
  static_assert(Block::kQh == Block::kQs - 4);
  NibbleTable low = LoadNibbleTable(kLow);
  NibbleTable high = Add({low}, Splat(16.0f)).v;
  BELLHOP_INLINE F32x16 Codes(__m512i nibbles, __m512i bits) const {
    const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), nibbles, bits, 0xCA);  // a ? b : c
    return {_mm512_permutex2var_ps(low, index, high)};
  }
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    // Rotations that bring bit i, and bit 16 + i, to bit 4 of lane i.
    const __m512i first = _mm512_setr_epi32(4, 3, 2, 1, 0, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21);
    const __m512i second = _mm512_setr_epi32(20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5);
    const __m512i bytes = WidenBytes(p), bits = _mm512_set1_epi32(LoadAs<int32_t>(p - 4));
    code[0] = Codes(bytes, _mm512_rolv_epi32(bits, first));
    code[1] = Codes(_mm512_srli_epi32(bytes, 4), _mm512_rolv_epi32(bits, second));
  }
};
alignas(16) inline constexpr int8_t kSignedFives[16] = {-16, -15, -14, -13, -12, -11, -10, -9,
                                                        -8,  -7,  -6,  -5,  -4,  -3,  -2,  -1};

// Q2_0: sixteen codes in a word.
alignas(16) inline constexpr int8_t kCenteredTwoBits[16] = {-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2};
struct TwoBitWordSource {
  using Block = quant::Q2_0Block;
  static constexpr int kGroup = 64, kVectors = 4, kLoadBytes = 16, kLoads = 1;
  static constexpr int kOffset = Block::kQs, kGap = Block::kBytes - 16;
  NibbleTable table = LoadNibbleTable(kCenteredTwoBits);
  __m512i shift = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    ForEach<4>([&]<int v>() BELLHOP_INLINE {
      code[v] = FromNibble(table, _mm512_srlv_epi32(_mm512_set1_epi32(LoadAs<int32_t>(p + 4 * v)), shift));
    });
  }
};

template <>
struct SourceOf<quant::WeightFormat::kQ5_0> {
  using Type = FiveBitSource<kSignedFives, quant::Q5_0Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kQ5_1> {
  using Type = FiveBitSource<kUnsignedNibbles, quant::Q5_1Block>;
};
template <>
struct SourceOf<quant::WeightFormat::kQ2_0> {
  using Type = TwoBitWordSource;
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
struct SourceOf<quant::WeightFormat::kNVFP4> {
  using Type = HalfNibbleSource;
};

#include "kernels/cpu/avx512/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

#include "kernels/cpu/avx512/few_block_steps_body.inc"

BELLHOP_FEW_ROWS(kQ4_0);
BELLHOP_FEW_ROWS(kQ4_1);
BELLHOP_FEW_ROWS(kQ5_0);
BELLHOP_FEW_ROWS(kQ5_1);
BELLHOP_FEW_ROWS(kQ8_0);
BELLHOP_FEW_ROWS(kIQ4NL);
BELLHOP_FEW_ROWS(kMXFP4);
BELLHOP_FEW_ROWS(kNVFP4);

}  // namespace
}  // namespace bellhop::kernels::avx512

namespace bellhop::kernels {

#define BELLHOP_DOT_OF(format_name, format)                               \
  void dot_##format_name##_f32_f32_avx512(const DotArgs& args) noexcept { \
    avx512::Dot<quant::WeightFormat::format>(args);                       \
  }
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
