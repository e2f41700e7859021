// What differs between the ISAs where blocks become codes and codes become f32 lanes, for the translation units of the
// dot and row-decode families. Internal linkage. Same interface as avx2/codes.h, and the nibble tables.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx512/f32x16.h"

namespace bellhop::kernels::avx512 {
namespace {

// The shape of a block of sums (dot_body.inc): how many weight rows, 1, 2 or 4, go with some x rows. Of 32 registers
// sums take 16 at most, the rest are for weights and what they are made of: the codes, their tables and a vector of x.
constexpr int SumRows(int) { return 4; }

// Products of many rows (dot_many_body.inc): the lanes of a register, and the most x rows whose sums with four weight
// rows registers hold next to a vector of each weight row and one of x.
using Part = __m512;
inline constexpr int kPartLanes = 16, kSumXRows = 6;
inline Part LoadPart(const float* p) { return _mm512_load_ps(p); }
inline void StorePart(float* p, Part v) { _mm512_store_ps(p, v); }
// sum[m][r] += w[r] * x[m], vectors being 16 floats apart. Wide loads from memory are scarcer than products: each
// vector is loaded once.
template <int kM>
__attribute__((always_inline)) inline void AddPartProducts(const float* w, const float* x, Part (*sum)[4]) {
  Part wv[4] = {LoadPart(w), LoadPart(w + 16), LoadPart(w + 32), LoadPart(w + 48)};
  asm("" : "+v"(wv[0]), "+v"(wv[1]), "+v"(wv[2]), "+v"(wv[3]));
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
    Part xv = LoadPart(x + 16 * m);
    asm("" : "+v"(xv));
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) sum[m][r] = _mm512_fmadd_ps(wv[r], xv, sum[m][r]);
  }
}
// The sum of each of four vectors, by the tree of lanes.h.
inline __m128 ReduceFour(const F32x16* a) {
  const auto halves = [](F32x16 x, F32x16 y) {  // x and y folded to eight lanes each
    return _mm512_add_ps(_mm512_shuffle_f32x4(x.v, y.v, 0x44), _mm512_shuffle_f32x4(x.v, y.v, 0xEE));
  };
  const __m512 ab = halves(a[0], a[1]), cd = halves(a[2], a[3]);
  __m512 sum = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xEE));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x55));
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, sum));
}
// Of four sums that follow each other.
inline __m128 ReduceFour(const float* sums) {
  const F32x16 four[4] = {Load(sums), Load(sums + 16), Load(sums + 32), Load(sums + 48)};
  return ReduceFour(four);
}

// A value that the compiler knows nothing about: it neither loads it again for each use nor folds it.
inline void KeepInRegister(F32x16* x) { asm("" : "+v"(x->v)); }

// Sixteen signed bytes.
inline F32x16 FromI8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

// Nibbles to f32 by one permute of a 16-entry table, which ignores the bits above the nibble.
using NibbleTable = __m512;
inline NibbleTable LoadNibbleTable(const int8_t* values) { return FromI8(reinterpret_cast<const uint8_t*>(values)).v; }
// Entries times `scale`, or plus a bias in one rounding.
inline __m512 ScaleTable(__m512 table, float scale) { return _mm512_mul_ps(table, _mm512_set1_ps(scale)); }
inline __m512 ScaleTable(__m512 table, float scale, float bias) {
  return _mm512_fmadd_ps(table, _mm512_set1_ps(scale), _mm512_set1_ps(bias));
}
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

#include "kernels/cpu/grid_load_body.inc"

// Entries of f32 grids side by side. Masked broadcasts run on either vector port, insertions of registers on one.
inline F32x16 TwoEntries(const float* g0, const float* g1) {
  const __m512 v = _mm512_castps256_ps512(_mm256_load_ps(g0));
  return {_mm512_mask_broadcast_f32x8(v, 0xFF00, _mm256_load_ps(g1))};
}
inline F32x16 FourEntries(const float* g0, const float* g1, const float* g2, const float* g3) {
  __m512 v = _mm512_castps128_ps512(_mm_load_ps(g0));
  v = _mm512_mask_broadcast_f32x4(v, 0x00F0, _mm_load_ps(g1));
  v = _mm512_mask_broadcast_f32x4(v, 0x0F00, _mm_load_ps(g2));
  return {_mm512_mask_broadcast_f32x4(v, 0xF000, _mm_load_ps(g3))};
}

// Element i of v negated where bit 16 * kHalf + i of the word is set.
template <int kHalf>
inline F32x16 NegateBySignBits(F32x16 v, const uint8_t* word) {
  constexpr int kTop = 31 - 16 * kHalf;
  const __m512i to_top =
      _mm512_setr_epi32(kTop, kTop - 1, kTop - 2, kTop - 3, kTop - 4, kTop - 5, kTop - 6, kTop - 7, kTop - 8, kTop - 9,
                        kTop - 10, kTop - 11, kTop - 12, kTop - 13, kTop - 14, kTop - 15);
  const __m512i bits = _mm512_sllv_epi32(_mm512_set1_epi32(LoadEntry<int>(word)), to_top);
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(v.v), bits, sign, 0x78))};  // v ^ (b & s)
}

// Nibbles of two words, eight each, to f32 through a table of eight (given twice: the permute looks at four bits).
using OctalTable = __m512;
inline OctalTable LoadOctalTable(const float* values) { return _mm512_load_ps(values); }
inline F32x16 FromNibbleWords(OctalTable table, const uint32_t* w0, const uint32_t* w1) {
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(*w0)), 0xFF00, static_cast<int>(*w1));
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(words, shift), table)};
}

}  // namespace
}  // namespace bellhop::kernels::avx512
