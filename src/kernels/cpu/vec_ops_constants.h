// Numbers that the reference and every ISA share. Constants only: a translation unit with ISA flags must not
// instantiate inline functions that others could link to.
#pragma once

namespace bellhop::kernels {

// exp: beyond these bounds results are 0 or Inf whatever the argument, so it is clamped first.
inline constexpr float kExpLow = -104.0f;
inline constexpr float kExpHigh = 89.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
// 1.5 * 2^23: adding it rounds to an integer (nearest even), whose value is then in the low mantissa bits.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr int kRoundMagicBits = 0x4B400000;
inline constexpr float kLn2High = 0x1.62e43p-1f;
inline constexpr float kLn2Low = -0x1.05c61p-29f;
// e^r = 1 + (r + r^2 * (c2 + c3 r + ... + c6 r^4)) on |r| <= ln(2)/2: minimax, relative error 3.7e-9.
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.555492p-3f;
inline constexpr float kExpC4 = 0x1.5558f2p-5f;
inline constexpr float kExpC5 = 0x1.123a2p-7f;
inline constexpr float kExpC6 = 0x1.6a23dp-10f;

// gelu, tanh form: 2z = g * (kGeluLinear + kGeluCubic * g^2); sqrt(8/pi) and 0.044715 * sqrt(8/pi).
inline constexpr float kGeluLinear = 0x1.988454p+0f;
inline constexpr float kGeluCubic = 0x1.2444f2p-4f;

}  // namespace bellhop::kernels
