#include "quant/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace bellhop::quant {
namespace {

float FromBits(uint32_t u) { return std::bit_cast<float>(u); }
uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }

// The definition, in binary64, where every half is exact.
double HalfValue(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

// Nearest half of a finite non-negative value by bisection over the 31,744 finite magnitudes, ties to even.
uint16_t NearestHalf(double v) {
  if (v >= 65520.0) return 0x7C00;
  uint16_t lo = 0, hi = 0x7BFF;
  while (lo < hi) {
    const uint16_t mid = static_cast<uint16_t>((lo + hi + 1) / 2);
    if (HalfValue(mid) <= v)
      lo = mid;
    else
      hi = static_cast<uint16_t>(mid - 1);
  }
  if (lo == 0x7BFF) return lo;
  const double below = v - HalfValue(lo), above = HalfValue(static_cast<uint16_t>(lo + 1)) - v;
  if (below < above) return lo;
  if (above < below) return static_cast<uint16_t>(lo + 1);
  return lo % 2 == 0 ? lo : static_cast<uint16_t>(lo + 1);
}

TEST(HalfTest, EveryHalfWidensExactly) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = F16ToF32(h);
    if ((h & 0x7C00) == 0x7C00) {
      const uint32_t mantissa = h & 0x3FFu;
      const uint32_t want = (h & 0x8000u) << 16 | 0x7F800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u);
      ASSERT_EQ(Bits(f), want) << h;
    } else {
      ASSERT_EQ(static_cast<double>(f), HalfValue(h)) << h;
      ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << h;
    }
  }
}

TEST(HalfTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const bool nan = (h & 0x7FFF) > 0x7C00;
    ASSERT_EQ(F32ToF16(F16ToF32(h)), nan ? (h & 0x8000) | 0x7E00 : h) << h;
  }
}

TEST(HalfTest, NarrowingRoundsToNearestEvenAroundEveryHalf) {
  for (uint32_t i = 0; i < 0x7BFF; ++i) {
    const double a = HalfValue(static_cast<uint16_t>(i)), b = HalfValue(static_cast<uint16_t>(i + 1));
    const float middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2);
    const float infinity = std::numeric_limits<float>::infinity();
    for (float f : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, infinity)}) {
      const uint16_t want = NearestHalf(f);
      ASSERT_EQ(F32ToF16(f), want) << f;
      ASSERT_EQ(F32ToF16(-f), want | 0x8000) << f;
    }
  }
}

TEST(HalfTest, NarrowingOfSpecialValues) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65519.996f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-3e38f), 0xFC00);
  EXPECT_EQ(F32ToF16(FromBits(0x7F800000u)), 0x7C00);
  EXPECT_EQ(F32ToF16(FromBits(0xFF800000u)), 0xFC00);
  EXPECT_EQ(F32ToF16(0.0f), 0x0000);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);  // half of the smallest subnormal, ties to even
  EXPECT_EQ(F32ToF16(std::nextafterf(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(F32ToF16(FromBits(0x00000001u)), 0x0000);
  EXPECT_EQ(F32ToF16(FromBits(0x80000001u)), 0x8000);
  for (uint32_t nan : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0x7FA12345u}) {
    EXPECT_EQ(F32ToF16(FromBits(nan)), 0x7E00) << nan;
    EXPECT_EQ(F32ToF16(FromBits(nan | 0x80000000u)), 0xFE00) << nan;
  }
}

TEST(HalfTest, Bf16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = Bf16ToF32(h);
    ASSERT_EQ(Bits(f), i << 16);
    const bool nan = (h & 0x7FFF) > 0x7F80;
    ASSERT_EQ(F32ToBf16(f), nan ? (h | 0x40) : h) << h;
    if ((h & 0x7F80) == 0x7F80) continue;
    // Below, at and above the middle of h and its neighbour away from zero.
    ASSERT_EQ(F32ToBf16(FromBits((i << 16) + 0x7FFF)), h);
    ASSERT_EQ(F32ToBf16(FromBits((i << 16) + 0x8000)), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(F32ToBf16(FromBits((i << 16) + 0x8001)), h + 1);
  }
}

TEST(HalfTest, Bf16NanNeverBecomesInfinity) {
  EXPECT_EQ(F32ToBf16(FromBits(0x7F800001u)), 0x7FC0);
  EXPECT_EQ(F32ToBf16(FromBits(0xFF80FFFFu)), 0xFFC0);
  EXPECT_EQ(F32ToBf16(FromBits(0x7FFFFFFFu)), 0x7FFF);
  EXPECT_EQ(F32ToBf16(FromBits(0x7F7FFFFFu)), 0x7F80);  // the largest finite value rounds to Inf
}

TEST(HalfTest, RowConversionsMatchTheScalarOnesAtOddAddresses) {
  std::vector<std::byte> packed(1 + 2 * 65536);
  std::vector<float> wide(65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    std::memcpy(packed.data() + 1 + 2 * i, &h, 2);
  }
  F16RowToF32(packed.data() + 1, 65536, wide.data());
  std::vector<std::byte> back(packed.size());
  F32RowToF16(wide.data(), 65536, back.data() + 1);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    ASSERT_EQ(Bits(wide[i]), Bits(F16ToF32(h)));
    uint16_t got;
    std::memcpy(&got, back.data() + 1 + 2 * i, 2);
    ASSERT_EQ(got, F32ToF16(wide[i]));
  }
}

}  // namespace
}  // namespace bellhop::quant
