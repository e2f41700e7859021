// Codes to f32 lanes, for the translation units of the dot and row-decode families. Internal linkage.
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

}  // namespace
}  // namespace bellhop::kernels::avx2
