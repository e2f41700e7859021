// What differs between the ISAs where blocks become codes and codes become f32 lanes, for the translation units of the
// dot and row-decode families. Internal linkage. Same interface as avx2/codes.h, and the nibble tables.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx512/f32x16.h"

namespace bellhop::kernels::avx512 {
namespace {

// Sixteen signed bytes.
inline F32x16 FromI8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

// Nibbles to f32 by one permute of a 16-entry table, which ignores the bits above the nibble.
using NibbleTable = __m512;
inline NibbleTable LoadNibbleTable(const int8_t* values) { return FromI8(reinterpret_cast<const uint8_t*>(values)).v; }
// The low nibble of each 32-bit lane, or another one after a shift.
inline F32x16 FromNibble(NibbleTable table, __m512i lanes) { return {_mm512_permutexvar_ps(lanes, table)}; }
inline __m512i WidenBytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Byte i is 0xFF where bit i of `bits` is set.
inline __m256i BitsToBytes(uint32_t bits) { return _mm256_maskz_mov_epi8(bits, _mm256_set1_epi8(-1)); }

// Byte i of v negated where bit i is set.
inline __m256i NegateByBits(uint32_t bits, __m256i v) {
  return _mm256_mask_sub_epi8(v, bits, _mm256_setzero_si256(), v);
}

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
}  // namespace bellhop::kernels::avx512
