// The sixteen lanes of lanes.h in two registers, for translation units compiled with AVX2, FMA and F16C.
// Same interface as avx512/f32x16.h. Internal linkage throughout: nothing here may be linked to by others.
// A function ending in N touches the first n lanes' memory only, 0 <= n < 16; the other lanes load as zero.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/vec_ops_constants.h"

namespace bellhop::kernels::avx2 {
namespace {

struct F32x16 {
  __m256 lo, hi;
};

struct Mask16 {
  __m256i lo, hi;
};

inline Mask16 FirstLanes(int64_t n) {
  const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(count, lane), _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)))};
}

inline F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 Splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
// The upper half is left out where it has no lane, so that no address beyond the row is even formed.
inline F32x16 LoadN(const float* p, int64_t n) {
  const Mask16 m = FirstLanes(n);
  return {_mm256_maskload_ps(p, m.lo), n > 8 ? _mm256_maskload_ps(p + 8, m.hi) : _mm256_setzero_ps()};
}
inline void StoreN(float* p, int64_t n, F32x16 x) {
  const Mask16 m = FirstLanes(n);
  _mm256_maskstore_ps(p, m.lo, x.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, m.hi, x.hi);
}

inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 FmaMinus(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}
// a * b - c in even lanes, a * b + c in odd ones.
inline F32x16 FmaAlternating(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 Negate(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
// Limit and value: a NaN value passes, as (limit > value ? limit : value) and its mirror image do.
inline F32x16 AtLeast(F32x16 limit, F32x16 value) {
  return {_mm256_max_ps(limit.lo, value.lo), _mm256_max_ps(limit.hi, value.hi)};
}
inline F32x16 AtMost(F32x16 limit, F32x16 value) {
  return {_mm256_min_ps(limit.lo, value.lo), _mm256_min_ps(limit.hi, value.hi)};
}
// Value and running maximum: a NaN value is skipped.
inline F32x16 MaxSkippingNan(F32x16 value, F32x16 max) {
  return {_mm256_max_ps(value.lo, max.lo), _mm256_max_ps(value.hi, max.hi)};
}
// The first n lanes of a, the rest of b.
inline F32x16 FirstN(int64_t n, F32x16 a, F32x16 b) {
  const Mask16 m = FirstLanes(n);
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(m.hi))};
}

// Lanes (0, 0, 2, 2, ...), (1, 1, 3, 3, ...) and (1, 0, 3, 2, ...).
inline F32x16 DupEven(F32x16 a) { return {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)}; }
inline F32x16 DupOdd(F32x16 a) { return {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)}; }
inline F32x16 SwapPairs(F32x16 a) { return {_mm256_permute_ps(a.lo, 0xB1), _mm256_permute_ps(a.hi, 0xB1)}; }
// Of eight elements per 128-bit half, the shuffle takes four and leaves them in the order 0, 2, 1, 3 of pairs.
template <int kPick>
inline __m256 PickOf(__m256 a, __m256 b) {
  const __m256 mixed = _mm256_shuffle_ps(a, b, kPick);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}
// The even elements of the 32 in (a, b), and the odd ones.
inline F32x16 EvenOf(F32x16 a, F32x16 b) { return {PickOf<0x88>(a.lo, a.hi), PickOf<0x88>(b.lo, b.hi)}; }
inline F32x16 OddOf(F32x16 a, F32x16 b) { return {PickOf<0xDD>(a.lo, a.hi), PickOf<0xDD>(b.lo, b.hi)}; }

// The tree of lanes.h.
inline float Reduce(F32x16 x) {
  const __m256 a8 = _mm256_add_ps(x.lo, x.hi);
  const __m128 a4 = _mm_add_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps(a8, 1));
  const __m128 a2 = _mm_add_ps(a4, _mm_movehl_ps(a4, a4));
  return _mm_cvtss_f32(_mm_add_ss(a2, _mm_movehdup_ps(a2)));
}

inline float ReduceMax(F32x16 x) {
  const __m256 a8 = _mm256_max_ps(x.lo, x.hi);
  const __m128 a4 = _mm_max_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps(a8, 1));
  const __m128 a2 = _mm_max_ps(a4, _mm_movehl_ps(a4, a4));
  return _mm_cvtss_f32(_mm_max_ss(a2, _mm_movehdup_ps(a2)));
}

inline __m256 ScaleHalfByExponent(__m256 p, __m256 rounded) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_set1_epi32(kRoundMagicBits));
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i s1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i s2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(s1)), _mm256_castsi256_ps(s2));
}
// p * 2^n, n being the integer in the low bits of `rounded` (a sum with kRoundMagic); two steps, each within range.
inline F32x16 ScaleByExponent(F32x16 p, F32x16 rounded) {
  return {ScaleHalfByExponent(p.lo, rounded.lo), ScaleHalfByExponent(p.hi, rounded.hi)};
}

// Sixteen halves in one 256-bit register: loads, stores and conversions. AVX2 has no masked 16-bit access: the tail
// goes through a local copy.
inline __m256i LoadHalves(const uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i LoadHalvesN(const uint16_t* p, int64_t n) {
  alignas(32) uint16_t copy[16] = {};
  for (int64_t i = 0; i < n; ++i) copy[i] = p[i];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(copy));
}
inline void StoreHalves(uint16_t* p, __m256i h) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h); }
inline void StoreHalvesN(uint16_t* p, int64_t n, __m256i h) {
  alignas(32) uint16_t copy[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(copy), h);
  for (int64_t i = 0; i < n; ++i) p[i] = copy[i];
}

inline F32x16 FromF16(__m256i h) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
inline F32x16 FromBf16(__m256i h) {
  const __m256i lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}

// The unit keeps the payload of a NaN; the rule of quant/half.h is sign | 0x7E00.
inline __m256i ToF16(F32x16 x) {
  const __m256i h = _mm256_set_m128i(_mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                                     _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const __m256i magnitude = _mm256_and_si256(h, _mm256_set1_epi16(0x7FFF));
  const __m256i is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7C00));
  const __m256i nan = _mm256_or_si256(_mm256_andnot_si256(_mm256_set1_epi16(0x7FFF), h), _mm256_set1_epi16(0x7E00));
  return _mm256_blendv_epi8(h, nan, is_nan);
}

inline __m256i RoundedBf16Bits(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline __m256i ToBf16(F32x16 x) {
  const __m256i lo = _mm256_srli_epi32(RoundedBf16Bits(x.lo), 16);
  const __m256i hi = _mm256_srli_epi32(RoundedBf16Bits(x.hi), 16);
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);  // the pack works within 128-bit halves
}
inline F32x16 RoundToBf16(F32x16 x) {
  const __m256i keep = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(RoundedBf16Bits(x.lo), keep)),
          _mm256_castsi256_ps(_mm256_and_si256(RoundedBf16Bits(x.hi), keep))};
}

}  // namespace
}  // namespace bellhop::kernels::avx2
