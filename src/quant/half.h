// IEEE binary16 and bfloat16 conversions, scalar, bit-exact (NaN rules: docs/formats.md).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace bellhop::quant {

inline float Bf16ToF32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// Round to nearest even, subnormals kept; a NaN keeps its upper 16 bits with bit 6 set.
inline uint16_t F32ToBf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

// Exact, subnormals included; a NaN keeps its payload (shifted) and becomes quiet as the F16C unit does.
float F16ToF32(uint16_t h);
// Round to nearest even, overflow to Inf; NaN becomes sign | 0x7E00.
uint16_t F32ToF16(float f);

// The same for `count` packed little-endian halves, at any alignment.
void F16RowToF32(const std::byte* src, int64_t count, float* dst);
void F32RowToF16(const float* src, int64_t count, std::byte* dst);

}  // namespace bellhop::quant
