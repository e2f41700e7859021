// What differs between the ISAs where blocks become codes and codes become f32 lanes, for the translation units of the
// dot and row-decode families. Internal linkage. Same interface as avx512/codes.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx2/f32x16.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx2 {
namespace {

// Sixteen signed bytes.
inline F32x16 FromI8(const uint8_t* p) {
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))};
}

// Byte i is 0xFF where bit i of `bits` is set.
inline __m256i BitsToBytes(uint32_t bits) {
  const __m256i spread =
      _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i pick = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), spread);
  return _mm256_cmpeq_epi8(_mm256_and_si256(v, pick), pick);
}

// Bytes of v negated where the mask byte is 0xFF.
inline __m256i NegateWhere(__m256i mask, __m256i v) { return _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask); }
// Byte i of v negated where bit i is set.
inline __m256i NegateByBits(uint32_t bits, __m256i v) { return NegateWhere(BitsToBytes(bits), v); }
inline __m256i SignBytes(uint64_t c0, uint64_t c1, uint64_t c2, uint64_t c3) {
  return _mm256_set_epi64x(
      static_cast<int64_t>(quant::kSignByteMasks[c3]), static_cast<int64_t>(quant::kSignByteMasks[c2]),
      static_cast<int64_t>(quant::kSignByteMasks[c1]), static_cast<int64_t>(quant::kSignByteMasks[c0]));
}
// Eights of bytes negated by the four 7-bit sign codes (quant::kSignMasks) in the low 28 bits of `codes`.
inline __m256i NegateBySigns7(uint32_t codes, __m256i v) {
  return NegateWhere(SignBytes(codes & 127, codes >> 7 & 127, codes >> 14 & 127, codes >> 21 & 127), v);
}
// The same with the codes in the top 7 bits of the four 16-bit words of `words`.
inline __m256i NegateByTopSigns7(uint64_t words, __m256i v) {
  return NegateWhere(SignBytes(words >> 9 & 127, words >> 25 & 127, words >> 41 & 127, words >> 57), v);
}

// Codebook entries side by side: four of eight bytes, or eight of four.
inline __m256i FourEights(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3) {
  const __m128i low = _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(g0)),
                                         _mm_loadl_epi64(reinterpret_cast<const __m128i*>(g1)));
  const __m128i high = _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(g2)),
                                          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(g3)));
  return _mm256_set_m128i(high, low);
}
inline __m128i FourFours(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3) {
  int v[4];
  __builtin_memcpy(v, g0, 4);
  __builtin_memcpy(v + 1, g1, 4);
  __builtin_memcpy(v + 2, g2, 4);
  __builtin_memcpy(v + 3, g3, 4);
  return _mm_setr_epi32(v[0], v[1], v[2], v[3]);
}
inline __m256i EightFours(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3, const uint8_t* g4,
                          const uint8_t* g5, const uint8_t* g6, const uint8_t* g7) {
  return _mm256_set_m128i(FourFours(g4, g5, g6, g7), FourFours(g0, g1, g2, g3));
}

}  // namespace
}  // namespace bellhop::kernels::avx2
