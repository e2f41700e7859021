// Sources of the planar formats, for the translation units that share them. Internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx2/codes.h"
#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/cpu/fp4_weights.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx2 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/avx2/nibble_lookup_body.inc"

#include "kernels/cpu/dot_body.inc"

#include "kernels/cpu/dot_many_body.inc"

#include "kernels/cpu/planar_body.inc"

#include "kernels/cpu/planar_many_body.inc"

template <int kGroupElems, int kBits, int kLoadVectors = 2>
struct PlanarLoad {
  static constexpr int kGroup = kGroupElems, kVectors = kLoadVectors, kLoadBytes = kVectors * 2 * kBits;
  static constexpr int kLoads = 1, kGap = 0, kOffset = 0;
};

// Raw nibbles: byte j holds codes 2j and 2j + 1.
template <int kGroupElems, const NibbleBytes& kBytes>
struct RawNibbles : PlanarLoad<kGroupElems, 4> {
  // The tables are no members: copies of a source would carry them through memory.
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    const NibbleLookup lookup{kBytes};
    const __m256i spread = _mm256_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1,  //
                                            2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1);
    const __m256i w = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load16(p)), spread);
    const __m256i index = _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi16(w, 4)), _mm256_set1_epi8(15));
    __m256i first, second;
    lookup.Words(index, &first, &second);
    code[0] = {LowFour(first), HighFour(first)};
    code[1] = {LowFour(second), HighFour(second)};
  }
};
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt4, kGroupElems> : RawNibbles<kGroupElems, kInt4Bytes> {};
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kFp4, kGroupElems> : RawNibbles<kGroupElems, kFp4Bytes> {};

// Sixteen codes are 48 bits: the first eight in the low 24 of them, the others in bits 8 to 31 of the dword that ends
// with them. The permute takes the low three bits of each lane.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt3, kGroupElems> : PlanarLoad<kGroupElems, 3> {
  __m256 table = _mm256_setr_ps(-4, -3, -2, -1, 0, 1, 2, 3);
  __m256i shift_low = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
  __m256i shift_high = _mm256_setr_epi32(8, 11, 14, 17, 20, 23, 26, 29);
  BELLHOP_INLINE F32x16 Sixteen(const uint8_t* p) const {
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(LoadAs<int32_t>(p)), shift_low);
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(LoadAs<int32_t>(p + 2)), shift_high);
    return {_mm256_permutevar8x32_ps(table, low), _mm256_permutevar8x32_ps(table, high)};
  }
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    code[0] = Sixteen(p);
    code[1] = Sixteen(p + 6);
  }
};

inline __m256 MinusZeroPoint(__m256i codes) { return _mm256_sub_ps(_mm256_cvtepi32_ps(codes), _mm256_set1_ps(128.0f)); }
inline F32x16 FromU8(__m128i bytes) {
  return {MinusZeroPoint(_mm256_cvtepu8_epi32(bytes)),
          MinusZeroPoint(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}

template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt8, kGroupElems> : PlanarLoad<kGroupElems, 8> {
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    ForEach<2>([&]<int v>() BELLHOP_INLINE {
      code[v] = {MinusZeroPoint(_mm256_cvtepu8_epi32(Load8(p + 16 * v))),
                 MinusZeroPoint(_mm256_cvtepu8_epi32(Load8(p + 16 * v + 8)))};
    });
  }
};

// 64 columns of one row: two chunks of 16 bytes, whose word m holds codes m, m + 8, m + 16 and m + 24.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt4Sm80, kGroupElems> {
  static constexpr int kGroup = kGroupElems, kVectors = 4, kLoadBytes = 128, kLoads = 1, kGap = 0, kOffset = 0;
  // The 32 columns of chunk kIndex.
  template <int kIndex>
  BELLHOP_INLINE void LoadGroup(const uint8_t* p, F32x16* code) const requires(kGroupElems == 32) {
    LoadChunk(p + 16 * kIndex, code);
  }
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    LoadChunk(p, code);
    LoadChunk(p + 16, code + 2);
  }
  BELLHOP_INLINE static void LoadChunk(const uint8_t* p, F32x16* code) {
    const NibbleLookup lookup{kInt4Bytes};
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 0, 2, 4, 6, 1, 3, 5, 7,  //
                                           8, 10, 12, 14, 9, 11, 13, 15, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m256i shift = _mm256_setr_epi64x(0, 4, 0, 4);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load16(p)), order);
    const __m256i index = _mm256_and_si256(_mm256_srlv_epi64(bytes, shift), _mm256_set1_epi8(15));
    __m256i first, second;  // codes 0..3, 16..19 | 4..7, 20..23 and 8..11, 24..27 | 12..15, 28..31
    lookup.Words(index, &first, &second);
    code[0] = {LowFour(first), LowFour(second)};
    code[1] = {HighFour(first), HighFour(second)};
  }
};

// 64 columns of one row: four chunks of 16 bytes, whose word m holds code m in its low and code m + 8 in its high byte.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt8Sm80, kGroupElems> {
  static constexpr int kGroup = kGroupElems, kVectors = 4, kLoadBytes = 128, kLoads = 1, kGap = 0, kOffset = 0;
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    ForEach<4>([&]<int chunk>() BELLHOP_INLINE {
      const __m256i words = _mm256_cvtepu16_epi32(Load16(p + 16 * chunk));
      code[chunk] = {MinusZeroPoint(_mm256_and_si256(words, _mm256_set1_epi32(255))),
                     MinusZeroPoint(_mm256_srli_epi32(words, 8))};
    });
  }
};

// In each half, elements 0, 2, 4, 6, 1, 3, 5, 7; and back.
inline __m256 EvenFirst(__m256 v) { return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)); }
inline __m256 InTurns(__m256 v) { return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); }
inline F32x16 Interleave(F32x16 v) { return {EvenFirst(v.lo), EvenFirst(v.hi)}; }
inline F32x16 Deinterleave(F32x16 v) { return {InTurns(v.lo), InTurns(v.hi)}; }

#include "kernels/cpu/avx2/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

inline constexpr int kScaleTableBytes = 32;
#include "kernels/cpu/planar_few_body.inc"

#include "kernels/cpu/avx2/planar_steps_body.inc"

// Eight rows of a K-major column to a vector, even ones first.
struct Fp4Rows {
  static constexpr int kLanes = 8;
  static constexpr int Vectors(int x_rows) { return x_rows == 1 ? 4 : 2; }  // as many sums as registers hold
  struct Vector {
    __m256 v;
  };
  __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  // Of the low nibble of each lane.
  BELLHOP_INLINE __m256 FromLanes(__m256i codes) const {
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, codes), _mm256_castsi256_ps(sign));
  }
  template <int kVectors>
  BELLHOP_INLINE void Codes(const uint8_t* p, Vector* code) const {
    const NibbleLookup lookup{kFp4Bytes};
    const __m256i bytes =
        kVectors == 4 ? _mm256_broadcastsi128_si256(Load16(p)) : _mm256_set1_epi64x(LoadAs<int64_t>(p));
    const __m256i rows = _mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 0, 4, 4));
    __m256i first, second;
    lookup.Words(_mm256_and_si256(rows, _mm256_set1_epi8(15)), &first, &second);
    code[0] = {LowFour(first)};
    code[1] = {HighFour(first)};
    if constexpr (kVectors == 4) {
      code[2] = {LowFour(second)};
      code[3] = {HighFour(second)};
    }
  }
  static BELLHOP_INLINE Vector Arrange(Vector v) { return {EvenFirst(v.v)}; }
  static BELLHOP_INLINE Vector Restore(Vector v) { return {InTurns(v.v)}; }
  // Sixteen columns of one row, from bytes whose nibble at `bit` is the row's.
  BELLHOP_INLINE F32x16 FromBytes(const uint8_t* p, int bit) const {
    const __m128i count = _mm_cvtsi32_si128(bit);
    return {FromLanes(_mm256_srl_epi32(_mm256_cvtepu8_epi32(Load8(p)), count)),
            FromLanes(_mm256_srl_epi32(_mm256_cvtepu8_epi32(Load8(p + 8)), count))};
  }
  static BELLHOP_INLINE Vector Zero() { return {_mm256_setzero_ps()}; }
  static BELLHOP_INLINE Vector Splat(float x) { return {_mm256_set1_ps(x)}; }
  static BELLHOP_INLINE Vector Load(const float* p) { return {_mm256_load_ps(p)}; }
  static BELLHOP_INLINE void Store(float* p, Vector v) { _mm256_store_ps(p, v.v); }
  static BELLHOP_INLINE Vector Add(Vector a, Vector b) { return {_mm256_add_ps(a.v, b.v)}; }
  static BELLHOP_INLINE Vector Mul(Vector a, Vector b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static BELLHOP_INLINE Vector Fma(Vector a, Vector b, Vector c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
};

#include "kernels/cpu/planar_kmajor_body.inc"

#include "kernels/cpu/planar_entries.inc"

}  // namespace
}  // namespace bellhop::kernels::avx2

// The two kernels of a format: BELLHOP_PLANAR_KERNELS(int4, kInt4).
#define BELLHOP_PLANAR_KERNELS(name, format)                                                                    \
  namespace bellhop::kernels {                                                                                  \
  void dot_##name##_f32_f32_avx2(const DotArgs& args) noexcept {                                                \
    avx2::DotOfFormat<quant::WeightFormat::format>(args);                                                       \
  }                                                                                                             \
  void row_decode_##name##_f32_avx2(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count, \
                                    float* dst) noexcept {                                                      \
    avx2::DecodeOfFormat<quant::WeightFormat::format>(weights, row, begin, count, dst);                         \
  }                                                                                                             \
  }
