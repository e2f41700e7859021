// What differs between the ISAs where blocks become codes and codes become f32 lanes, for the translation units of the
// dot and row-decode families. Internal linkage. Same interface as avx512/codes.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx2/f32x16.h"

namespace bellhop::kernels::avx2 {
namespace {

// The shape of a block of sums (dot_body.inc): how many weight rows, 1, 2 or 4, go with some x rows. 16 registers, two
// per F32x16.
constexpr int SumRows(int x_rows) { return x_rows <= 2 ? 2 : 1; }

// Products of many rows (dot_many_body.inc): the lanes of a register, and the most x rows whose sums with four weight
// rows registers hold next to their vectors and one of a weight row.
using Part = __m256;
inline constexpr int kPartLanes = 8, kSumXRows = 3;
inline Part LoadPart(const float* p) { return _mm256_load_ps(p); }
inline void StorePart(float* p, Part v) { _mm256_store_ps(p, v); }
// sum[m][r] += w[r] * x[m], vectors being 16 floats apart.
template <int kM>
__attribute__((always_inline)) inline void AddPartProducts(const float* w, const float* x, Part (*sum)[4]) {
  Part xv[kM];
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) {
    xv[m] = LoadPart(x + 16 * m);
    asm("" : "+x"(xv[m]));
  }
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    Part wv = LoadPart(w + 16 * r);
    asm("" : "+x"(wv));
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) sum[m][r] = _mm256_fmadd_ps(wv, xv[m], sum[m][r]);
  }
}
// The trees of lanes.h of four sums that follow each other.
inline __m128 ReduceFour(const float* sums) {
  __m256 half[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) half[i] = _mm256_add_ps(LoadPart(sums + 16 * i), LoadPart(sums + 16 * i + 8));
  const auto pair = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const __m256 ab = pair(half[0], half[1]), cd = pair(half[2], half[3]);
  const __m256 low = _mm256_shuffle_ps(ab, cd, 0x44), high = _mm256_shuffle_ps(ab, cd, 0xEE);
  const __m256 two = _mm256_add_ps(low, high);  // a0 a1 c0 c1 | b0 b1 d0 d1
  const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
  return _mm256_castps256_ps128(_mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0)));
}

// A value that the compiler knows nothing about: it neither loads it again for each use nor folds it.
inline void KeepInRegister(F32x16* x) { asm("" : "+x"(x->lo), "+x"(x->hi)); }

// Entries of a table of eight times `scale`, or plus a bias in one rounding.
inline __m256 ScaleTable(__m256 table, float scale) { return _mm256_mul_ps(table, _mm256_set1_ps(scale)); }
inline __m256 ScaleTable(__m256 table, float scale, float bias) {
  return _mm256_fmadd_ps(table, _mm256_set1_ps(scale), _mm256_set1_ps(bias));
}

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

#include "kernels/cpu/grid_load_body.inc"

// Entries of f32 grids side by side.
inline F32x16 TwoEntries(const float* g0, const float* g1) { return {_mm256_load_ps(g0), _mm256_load_ps(g1)}; }
inline __m256 PairOfFour(const float* g0, const float* g1) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(g0)), _mm_load_ps(g1), 1);
}
inline F32x16 FourEntries(const float* g0, const float* g1, const float* g2, const float* g3) {
  return {PairOfFour(g0, g1), PairOfFour(g2, g3)};
}

// Element i of v negated where bit 16 * kHalf + i of the word is set.
template <int kHalf>
inline F32x16 NegateBySignBits(F32x16 v, const uint8_t* word) {
  const __m256i bits = _mm256_set1_epi32(LoadEntry<int>(word));
  const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const auto top = [&](int skip) {
    const __m256i shifted = _mm256_sllv_epi32(bits, _mm256_sub_epi32(to_top, _mm256_set1_epi32(16 * kHalf + skip)));
    return _mm256_and_ps(_mm256_castsi256_ps(shifted), sign);
  };
  return {_mm256_xor_ps(v.lo, top(0)), _mm256_xor_ps(v.hi, top(8))};
}

// Nibbles of two words, eight each, to f32 through a table of eight.
using OctalTable = __m256;
inline OctalTable LoadOctalTable(const float* values) { return _mm256_load_ps(values); }
inline F32x16 FromNibbleWords(OctalTable table, const uint32_t* w0, const uint32_t* w1) {
  const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const auto half = [&](const uint32_t* w) {
    return _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(*w)), shift));
  };
  return {half(w0), half(w1)};
}

}  // namespace
}  // namespace bellhop::kernels::avx2
