#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"

namespace bellhop::kernels::avx512 {
namespace {

// 32 registers: 16 sums, the x of both panels, a weight.
inline constexpr int kPanels = 2, kRowsOfMany = 4, kRowsOfOne = 8;

inline F32x16 FirstOfPairs(const std::byte* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(p), 16))};
}
inline __m512i UpperHalves(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))); }
inline F32x16 SecondOfPairs(const std::byte* p) { return {_mm512_castsi512_ps(UpperHalves(_mm512_load_si512(p)))}; }

// Bits of x whose upper half is x as bf16.
inline __m512i FlushedBf16Bits(F32x16 x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __mmask16 denormal = _mm512_testn_epi32_mask(u, _mm512_set1_epi32(0x7F800000));
  return _mm512_mask_and_epi32(RoundedBf16Bits(x), denormal, u, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
}
inline F32x16 RoundFlushed(F32x16 x) { return {_mm512_castsi512_ps(UpperHalves(FlushedBf16Bits(x)))}; }

inline __m512i RoundPairs(F32x16 a, F32x16 b) {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(FlushedBf16Bits(a), _mm512_load_si512(kUpper), FlushedBf16Bits(b));
}
inline __m512i ZipPairs(F32x16 a, F32x16 b) {
  return _mm512_or_si512(_mm512_srli_epi32(FlushedBf16Bits(a), 16), UpperHalves(FlushedBf16Bits(b)));
}

#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_body.inc"
#include "kernels/cpu/gemm_zmm_body.inc"

}  // namespace
}  // namespace bellhop::kernels::avx512

#define BELLHOP_GEMM_NAMESPACE avx512
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_avx512_##function
#include "kernels/cpu/gemm_entries.inc"
