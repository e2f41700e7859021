#include "quant/half.h"

#include <cstring>

namespace bellhop::quant {
namespace {

constexpr uint32_t kSign32 = 0x80000000u;
constexpr uint32_t kExp32 = 0x7F800000u;
constexpr uint32_t kQuiet32 = 0x00400000u;

inline float WidenF16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7FFFu;
  uint32_t bits;
  if (magnitude >= 0x7C00u) {  // Inf, or NaN made quiet
    bits = kExp32 | (magnitude & 0x3FFu) << 13;
    if (magnitude > 0x7C00u) bits |= kQuiet32;
  } else if (magnitude >= 0x0400u) {  // normal: re-bias the exponent from 15 to 127
    bits = (magnitude << 13) + (112u << 23);
  } else {  // zero or subnormal: magnitude * 2^-24 is a normal binary32
    bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

inline uint16_t NarrowF16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (u & kSign32) >> 16;
  const uint32_t magnitude = u & ~kSign32;
  uint32_t h;
  if (magnitude > kExp32) {
    h = 0x7E00u;
  } else if (magnitude >= 0x477FF000u) {  // 65520 and above round to Inf
    h = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal half; a carry moves into the exponent
    h = (magnitude - (112u << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // Adding 0.5 makes one unit in the last place 2^-24, the half subnormal step, so the addition itself rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    h = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  }
  return static_cast<uint16_t>(sign | h);
}

}  // namespace

float F16ToF32(uint16_t h) { return WidenF16(h); }
uint16_t F32ToF16(float f) { return NarrowF16(f); }

void F16RowToF32(const std::byte* src, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, src + 2 * i, sizeof(h));
    dst[i] = WidenF16(h);
  }
}

void F32RowToF16(const float* src, int64_t count, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t h = NarrowF16(src[i]);
    std::memcpy(dst + 2 * i, &h, sizeof(h));
  }
}

}  // namespace bellhop::quant
