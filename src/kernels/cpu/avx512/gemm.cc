#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::avx512 {
namespace {

// 32 registers: 16 sums, the x of the panels, weights.
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

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_body.inc"
#include "kernels/cpu/gemm_zmm_body.inc"

inline constexpr int64_t kGroupStride = kGemmGroup * 4;

inline void StoreGroup(uint8_t* out, F32x16 a, F32x16 b) {
  float* f = reinterpret_cast<float*>(out);
  Store(f, RoundFlushed(a));
  Store(f + 16, RoundFlushed(b));
}

struct Tables {
  __m512 table[2];
};
inline Tables MakeTables(F32x16 a, F32x16 b) { return {{RoundFlushed(a).v, RoundFlushed(b).v}}; }
// The permute ignores the bits above the nibble.
inline void StoreLookedUp(uint8_t* out, __m512 table, __m512i first, __m512i second) {
  float* f = reinterpret_cast<float*>(out);
  _mm512_store_ps(f, _mm512_permutexvar_ps(first, table));
  _mm512_store_ps(f + 16, _mm512_permutexvar_ps(second, table));
}
template <int kTable>
inline void StoreNibbles(uint8_t* out, const Tables& tables, const uint8_t* p) {
  const __m512i bytes = WidenBytes(p);
  StoreLookedUp(out, tables.table[kTable], bytes, _mm512_srli_epi32(bytes, 4));
}
inline void StoreNibblePair(uint8_t* out, const Tables& tables, const uint8_t* p) {
  const __m512i first = WidenBytes(p), second = WidenBytes(p + 16);
  StoreLookedUp(out, tables.table[0], first, second);
  StoreLookedUp(out + kGroupStride, tables.table[1], _mm512_srli_epi32(first, 4), _mm512_srli_epi32(second, 4));
}

inline void FillPlanar(const FillArgs& args) { FillRows(args); }

#include "kernels/cpu/gemm_direct_fill_body.inc"

// The tile stays in L2; a product takes so long that decoding into L1 would not show.
inline void FillMultiply(const FillArgs* parts, int count, const GemmArgs& args) {
  for (int i = 0; i < count; ++i) Fill(parts[i]);
  Multiply(args);
}

}  // namespace
}  // namespace bellhop::kernels::avx512

#define BELLHOP_GEMM_NAMESPACE avx512
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_avx512_##function
#include "kernels/cpu/gemm_entries.inc"
