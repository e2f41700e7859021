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
inline __m256i BitsToBytes(uint32_t bits) { return _mm256_movm_epi8(bits); }

// Byte i of v negated where bit i is set.
inline __m256i NegateByBits(uint32_t bits, __m256i v) {
  return _mm256_mask_sub_epi8(v, bits, _mm256_setzero_si256(), v);
}
// Sign masks of four 7-bit codes (quant::kSignMasks): the eighth bit is the parity of the seven. Computed, as the
// loads and inserts of table entries would take the shuffle port.
inline uint32_t SignsOfCodes(uint32_t codes) {
  const uint32_t seven = _pdep_u32(codes, 0x7F7F7F7Fu);
  uint32_t parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 0x01010101u) << 7;
}
// Eights of bytes negated by the four 7-bit sign codes in the low 28 bits of `codes`.
inline __m256i NegateBySigns7(uint32_t codes, __m256i v) { return NegateByBits(SignsOfCodes(codes), v); }
// The same with the codes in the top 7 bits of the four 16-bit words of `words`.
inline __m256i NegateByTopSigns7(uint64_t words, __m256i v) {
  return NegateBySigns7(static_cast<uint32_t>(_pext_u64(words, 0xFE00FE00FE00FE00u)), v);
}

// Codebook entries side by side: four of eight bytes, or eight of four. Masked broadcasts merge on any vector port.
inline __m256i FourEights(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3) {
  const auto load = [](const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); };
  __m256i v = _mm256_castsi128_si256(load(g0));
  v = _mm256_mask_broadcastq_epi64(v, 2, load(g1));
  v = _mm256_mask_broadcastq_epi64(v, 4, load(g2));
  return _mm256_mask_broadcastq_epi64(v, 8, load(g3));
}
inline __m256i EightFours(const uint8_t* g0, const uint8_t* g1, const uint8_t* g2, const uint8_t* g3, const uint8_t* g4,
                          const uint8_t* g5, const uint8_t* g6, const uint8_t* g7) {
  const auto load = [](const uint8_t* p) { return _mm_loadu_si32(p); };
  __m256i v = _mm256_castsi128_si256(load(g0));
  v = _mm256_mask_broadcastd_epi32(v, 2, load(g1));
  v = _mm256_mask_broadcastd_epi32(v, 4, load(g2));
  v = _mm256_mask_broadcastd_epi32(v, 8, load(g3));
  v = _mm256_mask_broadcastd_epi32(v, 16, load(g4));
  v = _mm256_mask_broadcastd_epi32(v, 32, load(g5));
  v = _mm256_mask_broadcastd_epi32(v, 64, load(g6));
  return _mm256_mask_broadcastd_epi32(v, 128, load(g7));
}

}  // namespace
}  // namespace bellhop::kernels::avx512
