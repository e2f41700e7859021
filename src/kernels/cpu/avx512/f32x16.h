// The sixteen lanes of lanes.h in one register, for translation units compiled with AVX-512 F, BW, DQ, VL, FMA and
// F16C. Same interface as avx2/f32x16.h. Internal linkage throughout: nothing here may be linked to by others.
// A function ending in N touches the first n lanes' memory only, 0 <= n < 16; the other lanes load as zero.
#pragma once

// GCC 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for an uninitialised variable.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/vec_ops_constants.h"

namespace bellhop::kernels::avx512 {
namespace {

struct F32x16 {
  __m512 v;
};

inline __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32x16 Zero() { return {_mm512_setzero_ps()}; }
inline F32x16 Splat(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 LoadN(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
inline void Store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }
inline void StoreN(float* p, int64_t n, F32x16 x) { _mm512_mask_storeu_ps(p, FirstLanes(n), x.v); }

inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 FmaMinus(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }
// a * b - c in even lanes, a * b + c in odd ones.
inline F32x16 FmaAlternating(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmaddsub_ps(a.v, b.v, c.v)}; }
inline F32x16 Negate(F32x16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
// Limit and value: a NaN value passes, as (limit > value ? limit : value) and its mirror image do.
inline F32x16 AtLeast(F32x16 limit, F32x16 value) { return {_mm512_max_ps(limit.v, value.v)}; }
inline F32x16 AtMost(F32x16 limit, F32x16 value) { return {_mm512_min_ps(limit.v, value.v)}; }
// Value and running maximum: a NaN value is skipped.
inline F32x16 MaxSkippingNan(F32x16 value, F32x16 max) { return {_mm512_max_ps(value.v, max.v)}; }
// The first n lanes of a, the rest of b.
inline F32x16 FirstN(int64_t n, F32x16 a, F32x16 b) { return {_mm512_mask_blend_ps(FirstLanes(n), b.v, a.v)}; }

// Lanes (0, 0, 2, 2, ...), (1, 1, 3, 3, ...) and (1, 0, 3, 2, ...).
inline F32x16 DupEven(F32x16 a) { return {_mm512_moveldup_ps(a.v)}; }
inline F32x16 DupOdd(F32x16 a) { return {_mm512_movehdup_ps(a.v)}; }
inline F32x16 SwapPairs(F32x16 a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
// The even elements of the 32 in (a, b), and the odd ones.
inline F32x16 EvenOf(F32x16 a, F32x16 b) {
  const __m512i i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_ps(a.v, i, b.v)};
}
inline F32x16 OddOf(F32x16 a, F32x16 b) {
  const __m512i i = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_ps(a.v, i, b.v)};
}

inline __m256 HighHalf(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

// The tree of lanes.h.
inline float Reduce(F32x16 x) {
  const __m256 a8 = _mm256_add_ps(_mm512_castps512_ps256(x.v), HighHalf(x.v));
  const __m128 a4 = _mm_add_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps(a8, 1));
  const __m128 a2 = _mm_add_ps(a4, _mm_movehl_ps(a4, a4));
  return _mm_cvtss_f32(_mm_add_ss(a2, _mm_movehdup_ps(a2)));
}

inline float ReduceMax(F32x16 x) {
  const __m256 a8 = _mm256_max_ps(_mm512_castps512_ps256(x.v), HighHalf(x.v));
  const __m128 a4 = _mm_max_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps(a8, 1));
  const __m128 a2 = _mm_max_ps(a4, _mm_movehl_ps(a4, a4));
  return _mm_cvtss_f32(_mm_max_ss(a2, _mm_movehdup_ps(a2)));
}

// p * 2^n, n being the integer that `rounded` (a sum with kRoundMagic) holds; rounded once.
inline F32x16 ScaleByExponent(F32x16 p, F32x16 rounded) {
  return {_mm512_scalef_ps(p.v, _mm512_sub_ps(rounded.v, _mm512_set1_ps(kRoundMagic)))};
}

// Sixteen halves in one 256-bit register: loads, stores and conversions.
inline __m256i LoadHalves(const uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i LoadHalvesN(const uint16_t* p, int64_t n) { return _mm256_maskz_loadu_epi16(FirstLanes(n), p); }
inline void StoreHalves(uint16_t* p, __m256i h) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h); }
inline void StoreHalvesN(uint16_t* p, int64_t n, __m256i h) { _mm256_mask_storeu_epi16(p, FirstLanes(n), h); }

inline F32x16 FromF16(__m256i h) { return {_mm512_cvtph_ps(h)}; }
inline F32x16 FromBf16(__m256i h) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))}; }

// The unit keeps the payload of a NaN; the rule of quant/half.h is sign | 0x7E00.
inline __m256i ToF16(F32x16 x) {
  const __m256i h = _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i nan =
      _mm256_or_si256(_mm256_and_si256(h, _mm256_set1_epi16(static_cast<int16_t>(0x8000))), _mm256_set1_epi16(0x7E00));
  return _mm256_mask_mov_epi16(h, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), nan);
}

inline __m512i RoundedBf16Bits(F32x16 x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i nan = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), nan);
}
inline __m256i ToBf16(F32x16 x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundedBf16Bits(x), 16)); }
inline F32x16 RoundToBf16(F32x16 x) {
  return {_mm512_castsi512_ps(_mm512_and_si512(RoundedBf16Bits(x), _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

}  // namespace
}  // namespace bellhop::kernels::avx512
