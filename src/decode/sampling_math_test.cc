#include "decode/sampling_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace bellhop::decode {
namespace {

constexpr double kOne = 0x1p42;

TEST(SamplingMathTest, WeightsAreRoundedExponentials) {
  EXPECT_EQ(SampleWeight(0.0), uint64_t{1} << kWeightBits);
  EXPECT_EQ(SampleWeight(-0.0), uint64_t{1} << kWeightBits);
  for (double zero :
       {-30.0, -1e300, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(SampleWeight(zero), 0u);
  }
  uint64_t last = SampleWeight(0.0);
  for (int i = 1; i < 300000; ++i) {
    const double x = -1e-4 * i;
    const uint64_t weight = SampleWeight(x);
    ASSERT_NEAR(static_cast<double>(weight), std::exp(x) * kOne, 0.51 + 1e-15 * kOne * std::exp(x)) << x;
    ASSERT_LE(weight, last) << x;
    last = weight;
  }
}

TEST(SamplingMathTest, NeededWeightIsRoundedUpAndNeverZeroOrAboveTheTotal) {
  EXPECT_EQ(NeededWeight(0.5f, 10), 5u);
  EXPECT_EQ(NeededWeight(0.5f, 11), 6u);
  EXPECT_EQ(NeededWeight(0.0f, 11), 1u);
  EXPECT_EQ(NeededWeight(0x1.fffffep-1f, 3), 3u);
  EXPECT_LE(NeededWeight(0x1.fffffep-1f, uint64_t{1} << 63), uint64_t{1} << 63);
}

TEST(SamplingMathTest, DrawTargetIsExact) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bits = random() >> 11, total = random() >> (1 + random() % 50);
    __extension__ using Wide = unsigned __int128;
    EXPECT_EQ(DrawTarget(static_cast<double>(bits) * 0x1p-53, total), static_cast<uint64_t>(Wide{bits} * total >> 53));
  }
  EXPECT_EQ(DrawTarget(0.0, 100), 0u);
  EXPECT_EQ(DrawTarget(1.0 - 0x1p-53, 1), 0u);
}

}  // namespace
}  // namespace bellhop::decode
