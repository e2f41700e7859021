// Codes to f32 lanes, for the translation units of the dot and row-decode families. Internal linkage.
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

}  // namespace
}  // namespace bellhop::kernels::avx512
