// What differs between the ISAs where blocks become codes and codes become f32 lanes, for the translation units of the
// dot and row-decode families. Internal linkage. Same interface as avx512/codes.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx2/f32x16.h"

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

// Codebook entries side by side: four of eight bytes, or eight of four.
template <typename T>
inline T LoadEntry(const uint8_t* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline __m128i TwoEights(const uint8_t* g0, const uint8_t* g1) {
  return _mm_insert_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(g0)), LoadEntry<int64_t>(g1), 1);
}
inline __m256i FourEights(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3) {
  return _mm256_set_m128i(TwoEights(g2, g3), TwoEights(g0, g1));
}
inline __m128i FourFours(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3) {
  __m128i v = _mm_cvtsi32_si128(LoadEntry<int>(g0));
  v = _mm_insert_epi32(v, LoadEntry<int>(g1), 1);
  v = _mm_insert_epi32(v, LoadEntry<int>(g2), 2);
  return _mm_insert_epi32(v, LoadEntry<int>(g3), 3);
}
inline __m256i EightFours(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3, const uint8_t* g4,
                          const uint8_t* g5, const uint8_t* g6, const uint8_t* g7) {
  return _mm256_set_m128i(FourFours(g4, g5, g6, g7), FourFours(g0, g1, g2, g3));
}

}  // namespace
}  // namespace bellhop::kernels::avx2
