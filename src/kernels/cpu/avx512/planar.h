// Sources of the planar formats, for the translation units that share them. Internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/fp4_weights.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx512 {
namespace {

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/dot_body.inc"

#include "kernels/cpu/dot_many_body.inc"

#include "kernels/cpu/planar_body.inc"

#include "kernels/cpu/planar_many_body.inc"

// What sources of one block per load have in common.
template <int kGroupElems, int kBits, int kLoadVectors = 2>
struct PlanarLoad {
  static constexpr int kGroup = kGroupElems, kVectors = kLoadVectors, kLoadBytes = kVectors * 2 * kBits;
  static constexpr int kLoads = 1, kGap = 0, kOffset = 0;
};

// Tables for permutes, which ignore the index bits above the fourth.
alignas(64) inline constexpr float kInt4Table[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
alignas(64) inline constexpr float kInt3Table[16] = {-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3};
alignas(64) inline constexpr float kFp4Table[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// The dword at `low` in lanes 0 to 7, the one at `high` in lanes 8 to 15, as two loads that need no shuffle.
inline __m512i TwoDwords(const uint8_t* low, const uint8_t* high) {
  const __m512i a = _mm512_set1_epi32(LoadAs<int32_t>(low));
  const __m128i b = _mm_cvtsi32_si128(LoadAs<int32_t>(high));
  return _mm512_mask_broadcastd_epi32(a, 0xFF00, b);
}

// Raw nibbles: eight codes per dword.
template <int kGroupElems, const float (&kTable)[16]>
struct RawNibbles : PlanarLoad<kGroupElems, 4> {
  __m512 table = _mm512_load_ps(kTable);
  __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    code[0] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(TwoDwords(p, p + 4), shift), table)};
    code[1] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(TwoDwords(p + 8, p + 12), shift), table)};
  }
};
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt4, kGroupElems> : RawNibbles<kGroupElems, kInt4Table> {};
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kFp4, kGroupElems> : RawNibbles<kGroupElems, kFp4Table> {};

// Sixteen codes are 48 bits: the first eight in the low 24 of them, the others in bits 8 to 31 of the dword that ends
// with them.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt3, kGroupElems> : PlanarLoad<kGroupElems, 3> {
  __m512 table = _mm512_load_ps(kInt3Table);
  __m512i shift = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29);
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    code[0] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(TwoDwords(p, p + 2), shift), table)};
    code[1] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(TwoDwords(p + 6, p + 8), shift), table)};
  }
};

inline F32x16 FromU8(__m128i bytes) {
  return {_mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), _mm512_set1_ps(128.0f))};
}

template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt8, kGroupElems> : PlanarLoad<kGroupElems, 8> {
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    code[0] = FromU8(Load16(p));
    code[1] = FromU8(Load16(p + 16));
  }
};

// 64 columns of one row: two chunks of 16 bytes, whose word m holds codes m, m + 8, m + 16 and m + 24.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt4Sm80, kGroupElems> {
  static constexpr int kGroup = kGroupElems, kVectors = 4, kLoadBytes = 128, kLoads = 1, kGap = 0, kOffset = 0;
  static constexpr int kOwnBytes = 64;  // rows share the lines of a load
  __m512 table = _mm512_load_ps(kInt4Table);
  __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  __m512i second = _mm512_setr_epi32(8, 8, 8, 8, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12, 12);
  // The 32 columns of chunk kIndex.
  template <int kIndex>
  BELLHOP_INLINE void LoadGroup(const uint8_t* p, F32x16* code) const requires(kGroupElems == 32) {
    LoadChunk(p + 16 * kIndex, code);
  }
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    LoadChunk(p, code);
    LoadChunk(p + 16, code + 2);
  }
  BELLHOP_INLINE void LoadChunk(const uint8_t* p, F32x16* code) const {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_broadcastsi128_si256(Load16(p)));
    code[0] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(words, first), table)};
    code[1] = {_mm512_permutexvar_ps(_mm512_srlv_epi32(words, second), table)};
  }
};

// 64 columns of one row: four chunks of 16 bytes, even bytes codes 0 to 7 and odd ones 8 to 15.
template <int kGroupElems>
struct PlanarSource<PlanarLayout::kInt8Sm80, kGroupElems> {
  static constexpr int kGroup = kGroupElems, kVectors = 4, kLoadBytes = 128, kLoads = 1, kGap = 0, kOffset = 0;
  static constexpr int kOwnBytes = 64;  // rows share the lines of a load
  BELLHOP_INLINE void Load(const uint8_t* p, F32x16* code) const {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    ForEach<4>([&]<int chunk>()
                   BELLHOP_INLINE { code[chunk] = FromU8(_mm_shuffle_epi8(Load16(p + 16 * chunk), order)); });
  }
};

// Elements 0, 8, 1, 9, ...; and back.
inline F32x16 Interleave(F32x16 v) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), v.v)};
}
inline F32x16 Deinterleave(F32x16 v) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), v.v)};
}

#include "kernels/cpu/avx512/few_products_body.inc"

#include "kernels/cpu/dot_few_body.inc"

inline constexpr int kScaleTableBytes = 64;
#include "kernels/cpu/planar_few_body.inc"

#include "kernels/cpu/avx512/planar_steps_body.inc"

// Sixteen rows of a K-major column to a vector: eight bytes, in the order of Interleave.
struct Fp4Rows {
  static constexpr int kLanes = 16;
  static constexpr int Vectors(int) { return 4; }
  using Vector = F32x16;
  __m512 table = _mm512_load_ps(kFp4Table);
  __m512i shift = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
  template <int kVectors>
  BELLHOP_INLINE void Codes(const uint8_t* p, Vector* code) const {
    ForEach<kVectors>([&]<int v>() BELLHOP_INLINE {
      const __m512i eight = _mm512_set1_epi64(LoadAs<int64_t>(p + 8 * v));
      code[v] = {_mm512_permutexvar_ps(_mm512_srlv_epi64(eight, shift), table)};
    });
  }
  static BELLHOP_INLINE Vector Arrange(Vector v) { return Interleave(v); }
  static BELLHOP_INLINE Vector Restore(Vector v) { return Deinterleave(v); }
  // Sixteen columns of one row, from bytes whose nibble at `bit` is the row's.
  BELLHOP_INLINE F32x16 FromBytes(const uint8_t* p, int bit) const {
    return {_mm512_permutexvar_ps(_mm512_srl_epi32(WidenBytes(p), _mm_cvtsi32_si128(bit)), table)};
  }
  static BELLHOP_INLINE Vector Zero() { return {_mm512_setzero_ps()}; }
  static BELLHOP_INLINE Vector Splat(float x) { return {_mm512_set1_ps(x)}; }
  static BELLHOP_INLINE Vector Load(const float* p) { return {_mm512_load_ps(p)}; }
  static BELLHOP_INLINE void Store(float* p, Vector v) { _mm512_store_ps(p, v.v); }
  static BELLHOP_INLINE Vector Add(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
  static BELLHOP_INLINE Vector Mul(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static BELLHOP_INLINE Vector Fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
};

#include "kernels/cpu/planar_kmajor_body.inc"

#include "kernels/cpu/planar_entries.inc"

}  // namespace
}  // namespace bellhop::kernels::avx512

// The two kernels of a format: BELLHOP_PLANAR_KERNELS(int4, kInt4).
#define BELLHOP_PLANAR_KERNELS(name, format)                                                                      \
  namespace bellhop::kernels {                                                                                    \
  void dot_##name##_f32_f32_avx512(const DotArgs& args) noexcept {                                                \
    avx512::DotOfFormat<quant::WeightFormat::format>(args);                                                       \
  }                                                                                                               \
  void row_decode_##name##_f32_avx512(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count, \
                                      float* dst) noexcept {                                                      \
    avx512::DecodeOfFormat<quant::WeightFormat::format>(weights, row, begin, count, dst);                         \
  }                                                                                                               \
  }
