// Byte offsets inside the packed blocks, and the few helpers that unpack shared scale fields. docs/formats.md says in
// words how each field is read. All multi-byte fields are little-endian at any alignment: load them with memcpy.
//
// The helpers are always inlined, so that a translation unit compiled for one ISA never lends its copy to another.
// Kernels of GPUs call them too.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace bellhop::quant {

#define BELLHOP_ALWAYS_INLINE [[gnu::always_inline]] inline

// clang-format off

// kElems elements in kBytes bytes; kD is the f16 scale unless said otherwise, kQs the codes.
struct Q4_0Block { static constexpr int kElems = 32, kBytes = 18, kD = 0, kQs = 2; };  // also IQ4_NL
struct Q4_1Block { static constexpr int kElems = 32, kBytes = 20, kD = 0, kM = 2, kQs = 4; };
struct Q5_0Block { static constexpr int kElems = 32, kBytes = 22, kD = 0, kQh = 2, kQs = 6; };
struct Q5_1Block { static constexpr int kElems = 32, kBytes = 24, kD = 0, kM = 2, kQh = 4, kQs = 8; };
struct Q8_0Block { static constexpr int kElems = 32, kBytes = 34, kD = 0, kQs = 2; };
struct Q8_1Block { static constexpr int kElems = 32, kBytes = 36, kD = 0, kSum = 2, kQs = 4; };
struct Mxfp4Block { static constexpr int kElems = 32, kBytes = 17, kExponent = 0, kQs = 1; };
// Four UE4M3 scales, then eight code bytes per sub-block of 16.
struct Nvfp4Block { static constexpr int kElems = 64, kBytes = 36, kScales = 0, kQs = 4; };
struct Q1_0Block { static constexpr int kElems = 128, kBytes = 18, kD = 0, kQs = 2; };
struct Q2_0Block { static constexpr int kElems = 64, kBytes = 18, kD = 0, kQs = 2; };

struct Q2KBlock { static constexpr int kElems = 256, kBytes = 84, kScales = 0, kQs = 16, kD = 80, kDmin = 82; };
struct Q3KBlock { static constexpr int kElems = 256, kBytes = 110, kHmask = 0, kQs = 32, kScales = 96, kD = 108; };
struct Q4KBlock { static constexpr int kElems = 256, kBytes = 144, kD = 0, kDmin = 2, kScales = 4, kQs = 16; };
struct Q5KBlock {
  static constexpr int kElems = 256, kBytes = 176, kD = 0, kDmin = 2, kScales = 4, kQh = 16, kQs = 48;
};
struct Q6KBlock { static constexpr int kElems = 256, kBytes = 210, kQl = 0, kQh = 128, kScales = 192, kD = 208; };
// kD is a binary32; kSums are sixteen i16.
struct Q8KBlock { static constexpr int kElems = 256, kBytes = 292, kD = 0, kQs = 4, kSums = 260; };

struct Tq1_0Block { static constexpr int kElems = 256, kBytes = 54, kQs = 0, kQh = 48, kD = 52; };
struct Tq2_0Block { static constexpr int kElems = 256, kBytes = 66, kQs = 0, kD = 64; };

// kQs: eight bytes per 32 elements: four grid indices, then u32 with four 7-bit sign codes and the scale on top.
struct Iq2xxsBlock { static constexpr int kElems = 256, kBytes = 66, kD = 0, kQs = 2; };
// kQs: u16 per 8 elements, 9-bit index and 7-bit sign code.
struct Iq2xsBlock { static constexpr int kElems = 256, kBytes = 74, kD = 0, kQs = 2, kScales = 66; };
struct Iq2sBlock {
  static constexpr int kElems = 256, kBytes = 82, kD = 0, kQs = 2, kSigns = 34, kQh = 66, kScales = 74;
};
// kSignsScales: u32 per 32 elements.
struct Iq3xxsBlock { static constexpr int kElems = 256, kBytes = 98, kD = 0, kQs = 2, kSignsScales = 66; };
struct Iq3sBlock {
  static constexpr int kElems = 256, kBytes = 110, kD = 0, kQs = 2, kQh = 66, kSigns = 74, kScales = 106;
};
// kQh: u16 per 32 elements: four 3-bit index tops, 3-bit scale, delta sign.
struct Iq1sBlock { static constexpr int kElems = 256, kBytes = 50, kD = 0, kQs = 2, kQh = 34; };
// No separate scale field: Iq1mScaleBits assembles it from the tops of the four u16 at kScales.
struct Iq1mBlock { static constexpr int kElems = 256, kBytes = 56, kQs = 0, kQh = 32, kScales = 48; };
struct Iq4xsBlock {
  static constexpr int kElems = 256, kBytes = 136, kD = 0, kScalesHigh = 2, kScalesLow = 4, kQs = 8;
};

// clang-format on

inline constexpr float kIq1Delta = 0.125f;

// Q4_K and Q5_K: scale and minimum (0..63) of group g (0..7) from the 12 bytes at kScales.
BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE void SixBitPair(const uint8_t* s, int g, int* scale, int* min) {
  if (g < 4) {
    *scale = s[g] & 63;
    *min = s[g + 4] & 63;
  } else {
    *scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    *min = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
  }
}

// Q3_K: signed scale (-32..31) of group g (0..15) from the 12 bytes at kScales.
BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE int Q3KScale(const uint8_t* s, int g) {
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
  const int high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
  return low + 16 * high - 32;
}

// IQ4_XS: signed scale (-32..31) of sub-block b (0..7).
BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE int Iq4xsScale(const uint8_t* scales_low, uint16_t scales_high, int b) {
  const int low = (scales_low[b / 2] >> (4 * (b % 2))) & 15;
  const int high = (scales_high >> (2 * b)) & 3;
  return (low | high << 4) - 32;
}

// IQ1_M: bits of the f16 block scale from the eight bytes at kScales.
BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE uint16_t Iq1mScaleBits(const uint8_t* s) {
  return static_cast<uint16_t>(s[1] >> 4 | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12);
}

// TQ1_0: base-3 digit (0..2) of a byte; `power` is 3^n for digit n (0..4).
BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE int TernaryDigit(uint8_t byte, int power) {
  return (((byte * power) & 255) * 3) >> 8;
}

}  // namespace bellhop::quant
